"""A minimal release that really runs: creates the content of the Ignition configs of its bootstrap and its nodes.

The directories next to this file are trees of files and units: `all` for every machine, `bootstrap`, `node` for masters and
workers, `master`, `worker`; `native` replaces files of `all` if the control plane runs outside of the guests. A placeholder
`@name@` in a file is replaced; a unit is enabled if it has an `[Install]` section.
"""
import base64, json, os, re, subprocess

import node_images, yaml

HERE = os.path.dirname(os.path.abspath(__file__))
UNITS = 'etc/systemd/system/'


def file(path, text, mode=0o644):
    source = 'data:text/plain;charset=utf-8;base64,' + base64.b64encode(text.encode()).decode()
    return {'overwrite': True, 'path': path, 'user': {'name': 'root'}, 'mode': mode, 'contents': {'source': source}}


def tree(name, values):
    """The files and units of a directory."""
    files, units = [], []
    top = os.path.join(HERE, name)
    for folder, _, names in sorted(os.walk(top)):
        for leaf in sorted(names):
            place = os.path.join(folder, leaf)
            path = os.path.relpath(place, top)
            text = re.sub('@([a-z_]+)@', lambda word: values.get(word[1], word[0]), open(place).read())
            if path.startswith(UNITS):
                units.append({'name': leaf, 'contents': text, **({'enabled': True} if '[Install]' in text else {})})
            else:
                files.append(file('/' + path, text, 0o755 if os.access(place, os.X_OK) else 0o644))
    return files, units


class Authorities:
    """Keys and certificates that expire after 24 hours, like the installer's (openshift/installer: `pkg/asset/tls`)."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    def openssl(self, *words):
        subprocess.run(['openssl', *words], cwd=self.folder, check=True, capture_output=True)

    def read(self, name):
        return open(os.path.join(self.folder, name)).read()

    def key(self):
        return ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']

    def authority(self, name):
        self.openssl('req', '-x509', *self.key(), '-keyout', name + '.key', '-out', name + '.crt', '-days', '1',
                     '-subj', '/CN=' + name, '-addext', 'keyUsage=critical,keyCertSign,cRLSign,digitalSignature')

    def certificate(self, name, subject, authority, names='', days='1'):
        with open(os.path.join(self.folder, name + '.ext'), 'w') as f:
            f.write('extendedKeyUsage=clientAuth,serverAuth\n' + (f'subjectAltName={names}\n' if names else ''))
        self.openssl('req', '-new', *self.key(), '-keyout', name + '.key', '-subj', subject, '-out', name + '.csr')
        self.openssl('x509', '-req', '-in', name + '.csr', '-CA', authority + '.crt', '-CAkey', authority + '.key',
                     '-CAcreateserial', '-days', days, '-extfile', name + '.ext', '-out', name + '.crt')

    def kubeconfig(self, server, user):
        """For the holder of a certificate."""
        encoded = lambda name: base64.b64encode(self.read(name).encode()).decode()
        return self.kubeconfig_of(server, {'client-certificate-data': encoded(user + '.crt'), 'client-key-data': encoded(user + '.key')})

    def kubeconfig_of(self, server, user):
        authority = base64.b64encode(self.read('kube-ca.crt').encode()).decode()
        return json.dumps({
            'apiVersion': 'v1', 'kind': 'Config', 'current-context': 'admin',
            'clusters': [{'name': 'lab', 'cluster': {'server': server, 'certificate-authority-data': authority}}],
            'users': [{'name': 'admin', 'user': user}],
            'contexts': [{'name': 'admin', 'context': {'cluster': 'lab', 'user': 'admin'}}],
        })


def pki(folder, domain):
    made = Authorities(folder)
    for name in ('root-ca', 'kube-ca', 'front-ca', 'router-ca'):
        made.authority(name)
    # Contains only the internal name: openshift/installer, pkg/asset/tls/mcscertkey.go.
    made.certificate('machine-config-server', '/CN=system:machine-config-server', 'root-ca', 'DNS:api-int.' + domain)
    made.certificate('kube-apiserver', '/CN=kube-apiserver', 'kube-ca', ','.join(
        ['DNS:' + name for name in ('api.' + domain, 'api-int.' + domain, 'localhost', 'kubernetes.default.svc')]
        + ['IP:127.0.0.1', 'IP:172.30.0.1']))
    for name in ('admin', 'kube-controller-manager', 'kube-scheduler', 'operators', 'apiserver-to-kubelet'):
        made.certificate(name, '/O=system:masters/CN=' + name, 'kube-ca')
    made.certificate('front-proxy', '/CN=front-proxy-client', 'front-ca')
    # As after the first rotation: the installer's signer is valid for one day.
    made.certificate('csr-signer', '/CN=csr-signer', 'kube-ca', days='30')
    made.certificate('router', '/CN=router', 'router-ca', 'DNS:*.apps.' + domain)
    made.openssl('genrsa', '-out', 'service-account.key', '2048')
    made.openssl('rsa', '-in', 'service-account.key', '-pubout', '-out', 'service-account.pub')
    return made


def merge(into, files, units):
    """Merges files by path and units by name: later ones take precedence, drop-ins are combined
    (openshift/machine-config-operator: `pkg/controller/common/helpers.go`)."""
    into['files'].update({entry['path']: entry for entry in files})
    for unit in units:
        before = into['units'].get(unit['name'], {})
        dropins = before.get('dropins', []) + unit.get('dropins', [])
        into['units'][unit['name']] = {**before, **unit, **({'dropins': dropins} if dropins else {})}


def trees(values, *names):
    merged = {'files': {}, 'units': {}}
    for name in ('all', *(['native'] if values['native'] else []), *names):
        merge(merged, *tree(name, values))
    return merged


def pool(role, values, secrets):
    """The config that the machine config server serves to a role: the release's files, then the MachineConfigs in the
    directory `openshift`, by name."""
    merged = trees(values, 'node', role)
    merge(merged, secrets, [])
    manifests = [yaml.safe_load(open('openshift/' + name)) for name in os.listdir('openshift')]
    own = [manifest for manifest in manifests if manifest['kind'] == 'MachineConfig'
           and manifest['metadata'].get('labels', {}).get('machineconfiguration.openshift.io/role') == role]
    for config in sorted(own, key=lambda config: config['metadata']['name']):
        config = config['spec']['config']
        merge(merged, config.get('storage', {}).get('files', []), config.get('systemd', {}).get('units', []))
    return {'ignition': {'version': '3.2.0'}, 'storage': {'files': list(merged['files'].values())},
            'systemd': {'units': list(merged['units'].values())}}


def complete(bootstrap, config, here, pointer):
    """Adds the release to the bootstrap's config. Writes the admin's kubeconfig, the CA of the machine config server and the
    configs that it serves to the directory `here`; `settings.json` there contains values of placeholders. `pointer` returns
    the pointer config of a role."""
    domain = f'{config["metadata"]["name"]}.{config["baseDomain"]}'
    made = pki(os.path.join(here, 'tls'), domain)
    values = {'domain': domain, 'masters': str(config['controlPlane']['replicas']), 'signing_duration': '720h', 'native': '',
              'release_image': 'registry.example.com/ocp/release@sha256:4190'}
    settings = os.path.join(here, 'settings.json')
    if os.path.exists(settings):
        values.update(json.load(open(settings)))
    for name in ('kube-controller-manager', 'kube-scheduler') if values['native'] else ():
        with open(os.path.join(here, name + '.kubeconfig'), 'w') as f:
            f.write(made.kubeconfig('https://127.0.0.1:' + values['native'].rpartition(':')[2], name))
    loopback, api_int = 'https://localhost:6443', f'https://api-int.{domain}:6443'
    key = lambda name: file('/etc/kubernetes/pki/' + name, made.read(name), 0o600)
    pairs = ('kube-ca', 'kube-apiserver', 'apiserver-to-kubelet', 'front-proxy', 'machine-config-server', 'operators', 'router')
    secrets = [key(name + suffix) for name in pairs for suffix in ('.crt', '.key')]
    secrets += [key(name) for name in ('front-ca.crt', 'router-ca.crt', 'service-account.key', 'service-account.pub')]
    secrets += [file(f'/etc/kubernetes/{name}.kubeconfig', made.kubeconfig(loopback, name), 0o600)
                for name in ('kube-controller-manager', 'kube-scheduler')]
    # The identity with which masters request certificates. The installer gives them a certificate with this name
    # (openshift/installer: pkg/asset/tls/kubelet.go, KubeletClientCertKey), which is too long for openssl.
    token, groups = os.urandom(16).hex(), 'system:serviceaccounts:openshift-machine-config-operator,system:serviceaccounts'
    account = 'system:serviceaccount:openshift-machine-config-operator:node-bootstrapper'
    with open(os.path.join(made.folder, 'tokens.csv'), 'w') as f:
        f.write(f'{token},{account},0,"{groups}"\n')
    secrets.append(key('tokens.csv'))
    authority = file('/etc/kubernetes/ca.crt', made.read('kube-ca.crt'))
    images = lambda texts: [file(path, text, 0o600) for path, text in texts.items()]
    served = [authority, *images(node_images.node(config))]
    worker = pool('worker', values, served)
    master = pool('master', values, [*served, *secrets])
    beside = {'kubeconfig': made.kubeconfig(f'https://api.{domain}:6443', 'admin'), 'root-ca.crt': made.read('root-ca.crt'),
              'master.json': json.dumps(master), 'worker.json': json.dumps(worker)}
    for name, text in beside.items():
        with open(os.path.join(here, name), 'w') as f:
            f.write(text)
    own = trees(values, 'bootstrap')
    files = list(own['files'].values())
    files += [authority, *secrets, *images(node_images.bootstrap(config))]
    files += [file('/etc/mcs/master.json', json.dumps(master), 0o600), file('/etc/mcs/worker.json', json.dumps(worker), 0o600),
              file('/etc/mcs/kubeconfig', made.kubeconfig_of(api_int, {'token': token}), 0o600),
              file('/opt/openshift/auth/kubeconfig', made.kubeconfig(api_int, 'admin'), 0o600),
              file('/opt/openshift/auth/kubeconfig-loopback', made.kubeconfig(loopback, 'admin'), 0o600)]

    def secret(namespace, name, **data):
        encoded = {key.replace('_', '.'): base64.b64encode(text.encode()).decode() for key, text in data.items()}
        manifest = {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'namespace': namespace, 'name': name}, 'data': encoded}
        files.append(file(f'/opt/openshift/openshift/99_{namespace}_{name}.json', json.dumps(manifest), 0o600))

    secret('openshift-kube-controller-manager-operator', 'csr-signer', tls_crt=made.read('csr-signer.crt'))
    # openshift/installer: pkg/asset/machines/userdata.go
    for role in ('master', 'worker'):
        secret('openshift-machine-api', role + '-user-data', userData=json.dumps(pointer(role)))
    bootstrap['storage']['files'] += files
    bootstrap['systemd']['units'] += own['units'].values()
