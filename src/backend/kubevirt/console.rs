//! A machine's serial console over the websocket of its instance.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderName, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Error;
use kube::client::Body;
use kube::core::Status;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::{self, Message, protocol::Role};

use super::machines;
use super::session::{self, Session};
use crate::backend::{BackendError, BackendErrorKind, Console};
use crate::cluster::{ClusterId, KubevirtConfig, MachineName};

/// Unframed bytes in binary messages (kubevirt/kubevirt: staging/src/kubevirt.io/client-go/subresources/websocket.go).
const PROTOCOL: &str = "plain.kubevirt.io";
/// Proxies close idle connections; HAProxy's usual timeout is one minute.
const PING: Duration = Duration::from_secs(20);

type Line = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

pub(super) async fn open(
    session: &Session,
    config: &KubevirtConfig,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<Console, BackendError> {
    machines::find(session, cluster, name)
        .await?
        .ok_or_else(|| machines::absent(name))?;
    let path = format!(
        "/apis/subresources.kubevirt.io/v1/namespaces/{}/virtualmachineinstances/{name}/console",
        session.namespace
    );
    let line = connect(config, &path).await?;
    let (keys, typed) = mpsc::channel(16);
    let (written, screen) = mpsc::channel(16);
    tokio::spawn(async move {
        if let Err(error) = carry(line, typed, &written).await {
            let failure = BackendError::new(BackendErrorKind::Unreachable, error.to_string());
            // Sending fails if the user has closed the console.
            let _ = written.send(Err(failure)).await;
        }
    });
    Ok(Console { keys, screen })
}

/// An HTTP request that becomes a websocket (RFC 6455, section 4.1).
///
/// kube's own `connect` supports the protocols of pods only.
async fn connect(config: &KubevirtConfig, path: &str) -> Result<Line, BackendError> {
    let key = generate_key();
    let request = Request::get(path)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, &key)
        .header(SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
        .body(Body::empty())
        .map_err(|error| BackendError::new(BackendErrorKind::Rejected, error.to_string()))?;
    let answer = session::patient(config).await?.send(request).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refused(answer).await);
    }
    let says = |name: HeaderName| answer.headers().get(name).and_then(|value| value.to_str().ok());
    let accepted = derive_accept_key(key.as_bytes());
    if says(SEC_WEBSOCKET_ACCEPT) != Some(&accepted) || says(SEC_WEBSOCKET_PROTOCOL) != Some(PROTOCOL) {
        let words = format!("the server does not open a websocket with protocol {PROTOCOL}");
        return Err(BackendError::new(BackendErrorKind::Rejected, words));
    }
    let upgraded = hyper::upgrade::on(answer)
        .await
        .map_err(|error| BackendError::new(BackendErrorKind::Unreachable, error.to_string()))?;
    Ok(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await)
}

/// The reason why the console cannot be opened, as an error of the API.
async fn refused(answer: Response<Body>) -> BackendError {
    let code = answer.status().as_u16();
    let body = answer.into_body().collect_bytes().await.unwrap_or_default();
    let failure = BackendError::from(Error::Api(Status::failure(&message(&body), "").with_code(code).boxed()));
    match code {
        403 => failure.hint(
            "this requires the right to get virtualmachineinstances/console of subresources.kubevirt.io, which the \
            cluster role kubevirt.io:edit includes",
        ),
        // An instance that does not exist, that has failed, and that does not run (kubevirt/kubevirt:
        // `pkg/virt-api/rest/console.go`, `validateVMIForConsole`).
        404 | 409 => off(failure),
        400 if failure.message.contains(NOT_RUNNING) => off(failure),
        _ => failure,
    }
}

/// virt-api's message for a machine that starts or stops (kubevirt/kubevirt: `pkg/virt-api/rest/subresource.go`).
const NOT_RUNNING: &str = "VMI is not running";

fn off(failure: BackendError) -> BackendError {
    BackendError {
        kind: BackendErrorKind::Rejected,
        ..failure
    }
    .hint("a machine has a console while it runs: `ocpdeploy status` shows its state, `ocpdeploy start` starts it")
}

/// virt-api wraps its status in another one (kubevirt/kubevirt: pkg/virt-api/rest/subresource.go); proxies answer in
/// plain text.
fn message(body: &[u8]) -> String {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let told = [&value["message"], &value["ErrStatus"]["message"]];
    let told = told.into_iter().find_map(Value::as_str).map(str::to_owned);
    told.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned())
}

/// Copies bytes in both directions until one side closes.
async fn carry(
    mut line: Line,
    mut typed: mpsc::Receiver<Vec<u8>>,
    written: &mpsc::Sender<Result<Vec<u8>, crate::backend::BackendError>>,
) -> Result<(), tungstenite::Error> {
    let mut pings = tokio::time::interval(PING);
    loop {
        tokio::select! {
            keys = typed.recv() => match keys {
                Some(keys) => line.send(Message::binary(keys)).await?,
                None => return line.close(None).await,
            },
            message = line.next() => {
                let bytes = match message.transpose()? {
                    Some(Message::Binary(bytes)) => Vec::from(bytes),
                    Some(Message::Text(text)) => text.as_str().into(),
                    Some(Message::Close(_)) | None => return Ok(()),
                    Some(_) => continue,
                };
                if written.send(Ok(bytes)).await.is_err() {
                    return line.close(None).await;
                }
            }
            _ = pings.tick() => line.send(Message::Ping(Default::default())).await?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_for_a_missing_console_is_read_in_every_form() {
        for (body, words) in [
            (
                r#"{"kind": "Status", "message": "VMI is not running"}"#,
                "VMI is not running",
            ),
            (
                r#"{"ErrStatus": {"message": "VMI is not running"}}"#,
                "VMI is not running",
            ),
            ("upstream request timeout\n", "upstream request timeout"),
            ("", ""),
        ] {
            assert_eq!(message(body.as_bytes()), words);
        }
    }
}
