//! Mail and mbox.

use penstock_documents::FailureKind;

use crate::support::*;

const MIXED: &[u8] = b"From: A <a@example.org>\r\nTo: b@example.org\r\nSubject: =?utf-8?Q?h=C3=B6he?=\r\n\
Date: Mon, 1 Jun 2026 10:00:00 +0000\r\nMessage-ID: <1@example.org>\r\nMIME-Version: 1.0\r\n\
Content-Type: multipart/mixed; boundary=\"outer\"\r\n\r\npreamble\r\n--outer\r\n\
Content-Type: multipart/alternative; boundary=inner\r\n\r\n--inner\r\n\
Content-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\ncaf=E9\r\n--inner\r\n\
Content-Type: text/html\r\n\r\n<p>caf&eacute;</p>\r\n--inner--\r\n\r\n--outer\r\n\
Content-Type: image/png; name=x.png\r\nContent-Disposition: attachment; filename=\"photo.png\"\r\n\
Content-Transfer-Encoding: base64\r\n\r\niVBORw0KGgo\r\nAAAA=\r\n--outer\r\n\
Content-Type: message/rfc822\r\n\r\nFrom: c@example.org\r\nSubject: nested\r\n\r\ninner body\r\n--outer--\r\nepilogue\r\n";

#[test]
fn a_mail_gives_its_parts_in_order_and_nested_mails_are_entered() {
    let steps = walk("x", MIXED);
    assert_eq!(
        lines(&steps),
        [
            "0::+message/rfc822",
            "1:part 1:text/plain",
            "1:part 2:text/html",
            "1:photo.png:image/png",
            "1:part 4:+message/rfc822",
            "2:part 1:text/plain"
        ]
    );
    let mail = &steps[0];
    assert_eq!((mail.meta("mail.subject"), mail.meta("mail.from")), ("höhe", "A <a@example.org>"));
    assert_eq!((mail.meta("mail.to"), mail.meta("mail.date")), ("b@example.org", "2026-06-01T10:00:00Z"));
    // A part's bytes are decoded from the transfer encoding but stay in their charset; the text is decoded.
    assert_eq!((steps[1].text(), steps[1].bytes.as_deref()), ("café", Some(b"caf\xe9".as_slice())));
    assert_eq!(steps[2].text(), "café");
    assert!(steps[3].bytes.as_ref().unwrap().starts_with(b"\x89PNG"));
    assert_eq!((steps[4].meta("mail.subject"), steps[5].text()), ("nested", "inner body"));
}

#[test]
fn a_plain_mail_has_one_part_and_one_without_a_body_none() {
    let steps = walk("x", b"From: a@b\nTo: c@d\n\nhello\n");
    assert_eq!(lines(&steps), ["0::+message/rfc822", "1:part 1:text/plain"]);
    assert_eq!(steps[1].bytes.as_deref(), Some(b"hello\n".as_slice()));
    assert_eq!(lines(&walk("x", b"From: a@b\nTo: c@d\n\n")), ["0::+message/rfc822"]);
}

#[test]
fn a_mail_that_is_cut_says_so_and_keeps_what_it_has() {
    let at = |mark: &[u8]| MIXED.windows(mark.len()).position(|window| window == mark).unwrap();
    // Cut within a part: it has bytes, but they may be incomplete.
    let steps = walk("x", &MIXED[..at(b"&eacute;")]);
    let last = find(&steps, "part 2");
    assert_eq!((last.failure().0, last.bytes.as_deref()), (FailureKind::Broken, Some(b"<p>caf".as_slice())));
    // Cut between two parts of the outer multipart: something may be missing.
    let steps = walk("x", &MIXED[..at(b"\r\n\r\n--outer\r\nContent-Type: image")]);
    assert_eq!(lines(&steps)[1..], ["1:part 1:text/plain", "1:part 2:text/html", "1:part 3:broken"]);
    // Cut before the first part.
    let steps = walk("x", &MIXED[..at(b"--outer\r\nContent-Type: multipart")]);
    assert_eq!(lines(&steps)[1..], ["1:part 1:broken"]);
    assert_eq!(steps[1].bytes.as_deref(), Some(b"preamble\r\n".as_slice()));
}

#[test]
fn a_part_that_cannot_be_decoded_fails_and_its_siblings_live() {
    let mail = b"From: a@b\nSubject: x\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\
        Content-Transfer-Encoding: base64\n\naGVsb\n--b\nContent-Transfer-Encoding: x-odd\n\nraw\n--b\n\
        Content-Type: multipart/mixed\n\nno boundary\n--b\n\nfine\n--b--\n";
    let steps = walk("x", mail);
    assert_eq!(
        lines(&steps)[1..],
        ["1:part 1:broken", "1:part 2:unsupported", "1:part 3:broken", "1:part 4:text/plain"]
    );
    assert!(steps[1].bytes.is_none());
    assert_eq!(steps[2].bytes.as_deref(), Some(b"raw".as_slice()));
    assert_eq!(steps[4].text(), "fine");
}

#[test]
fn parts_of_a_digest_are_mails() {
    let mail = b"From: a@b\nSubject: x\nContent-Type: multipart/digest; boundary=b\n\n--b\n\n\
        Subject: one\n\nfirst\n--b\n\nSubject: two\n\nsecond\n--b--\n";
    let steps = walk("x", mail);
    assert_eq!(
        lines(&steps)[1..],
        ["1:part 1:+message/rfc822", "2:part 1:text/plain", "1:part 2:+message/rfc822", "2:part 1:text/plain"]
    );
}

#[test]
fn an_mbox_gives_its_mails_without_the_lines_between_them() {
    let mbox =
        b"From a@b Mon Jun  1 10:00:00 2026\nFrom: a@b\nSubject: one\n\nfirst\nFrom here on: no mail\n>From x\n\n\
        From c@d Mon Jun  1 11:00:00 2026\nSubject: two\n\nsecond\n\n";
    let steps = walk("x", mbox);
    assert_eq!(
        lines(&steps),
        [
            "0::+application/mbox",
            "1:part 1:+message/rfc822",
            "2:part 1:text/plain",
            "1:part 2:+message/rfc822",
            "2:part 1:text/plain"
        ]
    );
    assert_eq!(steps[1].meta("mbox.from"), "a@b Mon Jun  1 10:00:00 2026");
    assert_eq!(steps[2].text(), "first\nFrom here on: no mail\n>From x\n");
    assert_eq!(steps[5].bytes.as_deref(), Some(b"second\n".as_slice()));
}

#[test]
fn a_large_attachment_passes_through_a_spool() {
    let data = noise(300_000);
    let encoded: String = {
        const SET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let group = |g: &[u8]| {
            let bits = u32::from(g[0]) << 16 | u32::from(g[1]) << 8 | u32::from(g[2]);
            [18, 12, 6, 0].map(|shift| char::from(SET[(bits >> shift) as usize & 63]))
        };
        data.chunks(57)
            .flat_map(|line| line.chunks(3).flat_map(group).chain("\r\n".chars()).collect::<Vec<_>>())
            .collect()
    };
    let mail = format!("From: a@b\r\nTo: c@d\r\nContent-Transfer-Encoding: base64\r\n\r\n{encoded}");
    assert_eq!(walk("x", mail.as_bytes())[1].bytes.as_deref(), Some(data.as_slice()));
}

#[test]
fn a_mail_of_headers_only_has_no_parts_even_if_they_are_those_of_a_multipart() {
    let mail = b"From: a@b\nSubject: x\nContent-Type: multipart/mixed; boundary=b\n\n";
    assert_eq!(lines(&walk("x", mail)), ["0::+message/rfc822"]);
}
