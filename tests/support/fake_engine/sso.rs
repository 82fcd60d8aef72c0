//! Sessions: a token for a password, and the answers without a token (oVirt/ovirt-engine: OAuthTokenServlet,
//! OAuthRevokeServlet, SsoRestApiAuthFilter).

use serde_json::json;

use super::faults::html;
use super::http::{Answer, Request, form};
use super::world::World;

pub const USER: &str = "admin@internal";

impl World {
    /// Requests outside of the API: tokens, their revocation, and the CA's certificate.
    pub fn session(&mut self, request: &Request) -> Answer {
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/ovirt-engine/sso/oauth/token") => self.token(request),
            ("POST", "/ovirt-engine/services/sso-logout") => {
                let form = form(&String::from_utf8_lossy(&request.body));
                self.tokens.remove(form.get("token").map_or("", String::as_str));
                json_answer(200, json!({}))
            }
            ("GET", "/ovirt-engine/services/pki-resource") => {
                Answer::new(200, "application/x-x509-ca-cert", self.ca_pem.clone())
            }
            _ => {
                self.surprises.push(format!("{} {}", request.method, request.path));
                html(404, "Not Found")
            }
        }
    }

    fn token(&mut self, request: &Request) -> Answer {
        let header = |name: &str| request.headers.get(name).map_or("", String::as_str);
        if !header("accept").contains("application/json") {
            // The engine then answers with a page to log in.
            return html(200, "Login");
        }
        if !header("content-type").starts_with("application/x-www-form-urlencoded") {
            return refused("The request is missing the parameter grant_type", "invalid_request");
        }
        let form = form(&String::from_utf8_lossy(&request.body));
        let field = |name: &str| form.get(name).map_or("", String::as_str);
        if field("grant_type") != "password" {
            return refused("The grant type is not supported", "invalid_grant");
        }
        if field("scope") != "ovirt-app-api" {
            return refused("The requested scope is invalid", "invalid_scope");
        }
        if field("username") != USER || field("password") != self.password {
            let words = format!(
                "Cannot authenticate user '{}': The username or password is incorrect..",
                field("username")
            );
            return refused(&words, "access_denied");
        }
        let token = format!("token-{}", self.new_id());
        self.tokens.insert(token.clone(), self.now);
        // The time it ends, in milliseconds, as text.
        let exp = (1_767_600_000_000 + self.now + 50 * 3_600_000).to_string();
        json_answer(
            200,
            json!({"access_token": token, "scope": "ovirt-app-api", "exp": exp, "token_type": "bearer"}),
        )
    }

    /// Checks that a request has a token with an active session.
    pub fn authorize(&mut self, request: &Request) -> Result<(), Answer> {
        let (now, longest) = (self.now, self.times.session);
        self.tokens.retain(|_, last| now - *last <= longest);
        let bearer = request
            .headers
            .get("authorization")
            .and_then(|value| value.strip_prefix("Bearer "));
        match bearer.and_then(|token| self.tokens.get_mut(token)) {
            Some(last) => {
                *last = now;
                Ok(())
            }
            None => Err(html(401, "Unauthorized").header("WWW-Authenticate", "Basic realm=\"RESTAPI\"")),
        }
    }
}

fn refused(words: &str, code: &str) -> Answer {
    json_answer(400, json!({"error": words, "error_code": code}))
}

fn json_answer(status: u16, body: serde_json::Value) -> Answer {
    Answer::new(status, "application/json;charset=UTF-8", body.to_string())
}
