use proptest::prelude::*;

use super::*;

const MAX: usize = 32 * 1024;

fn reason(text: &str) -> Result<(), Reason> {
    match read(text.as_bytes(), MAX) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => panic!("incomplete: {text:?}"),
        Err(bad) => Err(bad.reason),
    }
}

fn connect(authority: &str) -> String {
    format!("CONNECT {authority} HTTP/1.1\r\n\r\n")
}

fn get(rest: &str) -> String {
    format!("GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n{rest}\r\n")
}

#[test]
fn rows_1_to_12_a_tunnel_s_target_is_canonical_or_refused() {
    let cases = [
        ("example.com:443", Ok(())),
        ("example.com.:443", Ok(())),
        ("[::1]:443", Ok(())),
        ("[example.com]:443", Err(Reason::HostInvalid)),
        ("evil\0.google.com:443", Err(Reason::HostInvalid)),
        ("127.1:443", Err(Reason::HostInvalid)),
        ("2130706433:443", Err(Reason::HostInvalid)),
        ("0x7f000001:443", Err(Reason::HostInvalid)),
        ("0177.0.0.1:443", Err(Reason::HostInvalid)),
        ("user@example.com:443", Err(Reason::HostInvalid)),
        ("a_b.example:443", Err(Reason::HostInvalid)),
        ("example.com", Err(Reason::TargetInvalid)),
        ("example.com:0", Err(Reason::TargetInvalid)),
        ("http://example.com:443", Err(Reason::HostInvalid)),
        ("/etc", Err(Reason::TargetInvalid)),
    ];
    for (authority, expected) in cases {
        assert_eq!(reason(&connect(authority)), expected, "{authority:?}");
    }
}

#[test]
fn rows_38_39_host_and_target_agree_by_name() {
    let with = |line: &str, host: &str| format!("{line}\r\n{host}\r\n");
    let cases = [
        (with("GET http://a.example/ HTTP/1.1", "Host: a.example\r\n"), Ok(())),
        (with("GET http://a.example/ HTTP/1.1", "Host: A.EXAMPLE.:80\r\n"), Ok(())),
        (with("GET http://a.example:81/ HTTP/1.1", "Host: a.example:81\r\n"), Ok(())),
        (with("GET http://a.example/ HTTP/1.1", "Host: b.example\r\n"), Err(Reason::HostMismatch)),
        (with("GET http://a.example:81/ HTTP/1.1", "Host: a.example\r\n"), Err(Reason::HostMismatch)),
        (
            with("GET http://a.example/ HTTP/1.1", "Host: a.example\r\nHost: a.example\r\n"),
            Err(Reason::HeadMalformed),
        ),
        (with("GET http://a.example/ HTTP/1.1", ""), Err(Reason::HeadMalformed)),
        (with("GET http://a.example/ HTTP/1.0", ""), Ok(())),
        (with("CONNECT a.example:443 HTTP/1.1", "Host: a.example:443\r\n"), Ok(())),
        (with("CONNECT a.example:443 HTTP/1.1", "Host: a.example\r\n"), Ok(())),
        (with("CONNECT a.example:443 HTTP/1.1", "Host: b.example:443\r\n"), Err(Reason::HostMismatch)),
        (with("CONNECT a.example:443 HTTP/1.1", "Host: a.example:444\r\n"), Err(Reason::HostMismatch)),
        (with("CONNECT a.example:443 HTTP/1.1", "Host: [a.example]\r\n"), Err(Reason::HostInvalid)),
        (with("GET / HTTP/1.1", ""), Err(Reason::HeadMalformed)),
    ];
    for (text, expected) in cases {
        assert_eq!(reason(&text), expected, "{text:?}");
    }
}

#[test]
fn rows_44_to_51_a_length_is_plain_or_refused() {
    let cases = [
        ("", Ok(Framing::None)),
        ("Content-Length: 5\r\n", Ok(Framing::Length(5))),
        ("Transfer-Encoding: chunked\r\n", Ok(Framing::Chunked)),
        ("Transfer-Encoding: Chunked\r\n", Ok(Framing::Chunked)),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Err(Reason::FramingInvalid)),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Err(Reason::FramingInvalid)),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Err(Reason::FramingInvalid)),
        ("Transfer-Encoding: chunked,\r\n", Err(Reason::FramingInvalid)),
        ("Transfer-Encoding: ,chunked\r\n", Err(Reason::FramingInvalid)),
        ("Transfer-Encoding: \tchunked\x0b\r\n", Err(Reason::HeadMalformed)),
        ("Transfer-Encoding : chunked\r\n", Err(Reason::HeadMalformed)),
        ("Transfer-Encoding: chunked;q=1\r\n", Err(Reason::FramingInvalid)),
        ("Transfer-Encoding: xchunked\r\n", Err(Reason::FramingInvalid)),
        ("Transfer-Encoding: \"chunked\"\r\n", Err(Reason::FramingInvalid)),
        ("Transfer-Encoding: gzip, chunked\r\n", Err(Reason::CodingNotServed)),
        ("Transfer-Encoding: identity\r\n", Err(Reason::CodingNotServed)),
        ("Content-Length: 5, 5\r\n", Err(Reason::FramingInvalid)),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", Err(Reason::FramingInvalid)),
        ("Content-Length: +5\r\n", Err(Reason::FramingInvalid)),
        ("Content-Length: 0x5\r\n", Err(Reason::FramingInvalid)),
        ("Content-Length: -1\r\n", Err(Reason::FramingInvalid)),
        ("Content-Length:\r\n", Err(Reason::FramingInvalid)),
        ("Content-Length: 99999999999999999999\r\n", Err(Reason::FramingInvalid)),
        ("A: b\r\n folded\r\n", Err(Reason::HeadMalformed)),
        ("A: b\nContent-Length: 5\r\n", Err(Reason::HeadMalformed)),
        ("A: b\rc\r\n", Err(Reason::HeadMalformed)),
        ("A: b\0c\r\n", Err(Reason::HeadMalformed)),
        (": b\r\n", Err(Reason::HeadMalformed)),
        ("A b\r\n", Err(Reason::HeadMalformed)),
        ("Connection: content-length\r\nContent-Length: 5\r\n", Err(Reason::HeadMalformed)),
    ];
    for (lines, expected) in cases {
        let text = get(lines);
        let found = read(text.as_bytes(), MAX).map(|head| head.unwrap().0.framing).map_err(|bad| bad.reason);
        assert_eq!(found, expected, "{lines:?}");
    }
    let old = "POST http://a.example/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(reason(old), Err(Reason::FramingInvalid), "row 49");
    assert_eq!(
        reason("DELETE http://a.example/ HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n"),
        Ok(()),
        "row 50"
    );
    assert_eq!(
        reason("CONNECT a.example:443 HTTP/1.1\r\nContent-Length: 4\r\n\r\n"),
        Err(Reason::FramingInvalid)
    );
}

#[test]
fn row_54_a_large_head_is_refused_before_it_is_whole() {
    let mut text = get(&format!("X-Forwarded-For: {}\r\n", "1.2.3.4, ".repeat(8000)));
    assert_eq!(reason(&text), Err(Reason::HeadTooLarge));
    text.truncate(MAX);
    assert_eq!(reason(&text), Err(Reason::HeadTooLarge));
    assert_eq!(reason(&get(&"A: b\r\n".repeat(200))), Err(Reason::HeadMalformed));
    assert_eq!(read(b"GET http://a.exa", MAX), Ok(None));
    assert_eq!(read(b"", MAX), Ok(None));
}

#[test]
fn row_55_only_known_schemes_forms_and_versions_pass() {
    let line = |line: &str| format!("{line}\r\nHost: a.example\r\n\r\n");
    let cases = [
        ("GET http://a.example HTTP/1.1", Ok(())),
        ("GET ws://a.example/ HTTP/1.1", Ok(())),
        ("GET https://a.example/ HTTP/1.1", Ok(())),
        ("GET ftp://a.example/ HTTP/1.1", Err(Reason::SchemeInvalid)),
        ("GET file:///etc/passwd HTTP/1.1", Err(Reason::SchemeInvalid)),
        ("GET javascript:alert(1) HTTP/1.1", Err(Reason::SchemeInvalid)),
        ("GET a.example HTTP/1.1", Err(Reason::TargetInvalid)),
        ("OPTIONS * HTTP/1.1", Err(Reason::TargetInvalid)),
        ("GET http://a.example/#x HTTP/1.1", Err(Reason::TargetInvalid)),
        ("GET http://u:p@a.example/ HTTP/1.1", Err(Reason::HostInvalid)),
        ("GET http:///x HTTP/1.1", Err(Reason::HostInvalid)),
        ("GET http://a.example/ HTTP/2.0", Err(Reason::VersionInvalid)),
        ("PRI * HTTP/2.0", Err(Reason::VersionInvalid)),
        ("GET http://a.example/ HTTP/1.1 ", Err(Reason::HeadMalformed)),
        ("GET  http://a.example/ HTTP/1.1", Err(Reason::HeadMalformed)),
        ("GET http://a.example/", Err(Reason::HeadMalformed)),
        ("GE(T http://a.example/ HTTP/1.1", Err(Reason::HeadMalformed)),
    ];
    for (text, expected) in cases {
        assert_eq!(reason(&line(text)), expected, "{text}");
    }
    assert_eq!(read(&[22, 3, 1], MAX).unwrap_err().reason, Reason::HeadMalformed, "TLS on the proxy's port");
    assert_eq!(read(b"\r\n", MAX).unwrap_err().reason, Reason::HeadMalformed);
}

#[test]
fn rows_61_92_what_goes_upstream_is_origin_form_without_this_hop() {
    let text = "GET http://a.example//b?c HTTP/1.1\r\nHost: A.example\r\nProxy-Authorization: Basic x\r\nConnection: X-Own\r\n\
                X-Own: 1\r\nUpgrade: h2c\r\nCrucible-Broker-Token: t\r\nAccept: */*\r\nTE: trailers\r\n\r\n";
    let (head, _) = read(text.as_bytes(), MAX).unwrap().unwrap();
    let Form::Absolute { target, path, .. } = &head.form else { panic!("absolute") };
    let mut out = Vec::new();
    head.write(target, *path, true, &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "GET //b?c HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n\r\n"
    );
    let text = "GET http://[2001:db8::1]:8080?q HTTP/1.0\r\n\r\n";
    let (head, _) = read(text.as_bytes(), MAX).unwrap().unwrap();
    let Form::Absolute { target, path, .. } = &head.form else { panic!("absolute") };
    let mut out = Vec::new();
    head.write(target, *path, false, &mut out);
    assert_eq!(out, b"GET /?q HTTP/1.0\r\nHost: [2001:db8::1]:8080\r\nConnection: close\r\n\r\n");
}

#[test]
fn the_next_request_stays_in_the_buffer() {
    let first = get("Content-Length: 0\r\n");
    let both = format!("{first}GET");
    assert_eq!(read(both.as_bytes(), MAX).unwrap().unwrap().1, first.len());
}

proptest! {
    #[test]
    fn any_bytes_have_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes, 200);
        let mut bytes = bytes;
        bytes.splice(0..0, *b"GET http://a.example/ HTTP/1.1\r\n");
        bytes.extend(b"\r\n\r\n");
        let _ = read(&bytes, MAX);
    }

    #[test]
    fn what_is_passed_on_reads_the_same(lines in proptest::collection::vec("[A-Za-z-]{1,8}: [ -~]{0,12}\r\n", 0..6)) {
        let text = get(&lines.concat());
        if let Ok(Some((head, _))) = read(text.as_bytes(), MAX) {
            let Form::Absolute { target, path, .. } = &head.form else { panic!("absolute") };
            let mut out = Vec::new();
            head.write(target, *path, true, &mut out);
            let again = read(&out, MAX).unwrap().unwrap().0;
            prop_assert_eq!(again.framing, head.framing);
            prop_assert!(again.host_is(target, false).is_ok());
        }
    }
}
