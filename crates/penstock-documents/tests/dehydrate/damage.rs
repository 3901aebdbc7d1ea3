//! Samples of every format, cut at every byte and with changed bits: nothing panics, and the API keeps its promises.

use crate::fuzzing::fuzz_dehydrate;
use crate::support::*;

fn samples() -> Vec<Vec<u8>> {
    let text = b"some text, some more text, and then some";
    let members = [
        Member::stored("mimetype", "application/epub+zip"),
        Member::deflated("d.txt", text),
        Member::packed("b", 12, bzip2(text), text),
        Member::packed("z", 93, zstd(text), text),
        Member::packed("x", 95, xz(text), text),
        Member::packed("64", 9, b"\x4b\x04\0".to_vec(), b"a"),
    ];
    let mut tarball = tar(&[(&"n".repeat(120), b"x")]);
    tarball.truncate(2048);
    tarball.extend(tar_entry(b'x', b"p", b"", b"11 path=\xc3\xa4\n"));
    tarball.extend(tar_entry(b'0', b"q", b"", b"y"));
    tarball.extend(tar_entry(b'2', b"l", b"t", b""));
    tarball.extend([0; 1024]);
    let mail = b"From: a@b\nTo: =?utf-8?B?w6Q=?=\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\
        Content-Transfer-Encoding: base64\nContent-Disposition: attachment; filename*=utf-8''%C3%A4\n\naGVsbG8=\n--b\n\
        Content-Type: multipart/digest; boundary=c\n\n--c\n\nSubject: x\n\ny=3D\n--c--\n--b--\n";
    let mbox = [b"From a@b Mon Jun  1 10:00:00 2026\n".as_slice(), mail, b"\n"].concat().repeat(2);
    vec![
        zip(&members),
        tarball,
        gzip(Some("name"), &gzip(None, text)),
        bzip2(text),
        xz(text),
        zstd(text),
        mail.to_vec(),
        mbox,
        b"<html><title>t</title><img src='data:text/csv;base64,YSxi'><style>a{b:url(data:,x)}</style><a href=y>z"
            .to_vec(),
        b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b 'c'>]><a b='c'>&lt;&#65;&b;<![CDATA[x]]></a>".to_vec(),
        b"{\"a\": [1, 2.5, \"\\u00e4\", null]}".to_vec(),
        b"a,\"b\n\",c\n1,2,3\n4,5,6\n".to_vec(),
        b"# Title\n\n[a](b/c)\n```\nx\n```\n".to_vec(),
        b"%PDF-1.7\npage\n".to_vec(),
    ]
}

#[test]
fn samples_cut_at_every_byte_hold_every_promise() {
    for sample in samples() {
        for end in 0..=sample.len() {
            fuzz_dehydrate(&sample[..end]);
        }
    }
}

#[test]
fn samples_with_any_bit_flipped_hold_every_promise() {
    for sample in samples() {
        // Every bit of small samples, and one bit of every byte of larger ones.
        let step = if sample.len() < 700 { 1 } else { 7 };
        for bit in (0..sample.len() * 8).step_by(step) {
            let mut bytes = sample.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fuzz_dehydrate(&bytes);
        }
    }
}

#[test]
fn samples_with_an_byte_set_to_its_extremes_hold_every_promise() {
    for sample in samples() {
        for at in 0..sample.len() {
            for value in [0, 0xff] {
                let mut bytes = sample.clone();
                bytes[at] = value;
                fuzz_dehydrate(&bytes);
            }
        }
    }
}
