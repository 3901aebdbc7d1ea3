//! PDF, HTML, XML and texts.

use penstock_documents::FailureKind;

use crate::support::*;

#[test]
fn a_pdf_gives_its_pages_and_a_page_that_fails_leaves_the_others() {
    let steps = walk("x", b"%PDF-1.7\nfirst\nCRASH\nthird\n");
    assert_eq!(lines(&steps), ["0::+application/pdf", "1:page 1:text/plain", "1:page 2:broken", "1:page 3:text/plain"]);
    assert_eq!((steps[0].meta("pdf.title"), steps[0].meta("pdf.pages")), ("A PDF", "3"));
    assert_eq!((steps[1].text(), steps[1].bytes.as_deref()), ("first", Some(b"first".as_slice())));
    assert_eq!(find(&steps, "page 2").failure().1, "the reader crashed on this page");
}

#[test]
fn a_pdf_that_cannot_be_opened_or_ends_early_says_so() {
    let steps = walk("x", b"%PDF-1.7\nENCRYPTED\n");
    assert_eq!((lines(&steps), steps[0].failure().1), (vec!["0::broken".to_owned()], "the document is encrypted"));
    assert!(steps[0].bytes.is_some());
    let steps = walk("x", b"%PDF-1.7\none\nEND\nthree\n");
    assert_eq!(lines(&steps)[1..], ["1:page 1:text/plain", "1:page 2:broken"]);
}

#[test]
fn html_without_embedded_data_is_a_leaf_with_text_title_and_links() {
    let html = b"<!doctype html><title>A &amp;\n B</title><style>p{}</style><script>var x = '<p>';</script>\
        <h1>Head</h1><p>caf&eacute;  <b>bo</b>ld<br>next<p><a href='https://example.org/?a=1&amp;b=2'>link</a>";
    let steps = walk("x", html);
    assert_eq!(lines(&steps), ["0::text/html"]);
    assert_eq!(steps[0].text(), "Head\ncafé bold\nnext\nlink");
    assert_eq!(steps[0].meta("html.title"), "A & B");
    assert_eq!(steps[0].meta("html.links"), r#"["https://example.org/?a=1&b=2"]"#);
    assert_eq!(steps[0].bytes.as_deref(), Some(html.as_slice()));
}

#[test]
fn html_with_embedded_data_keeps_its_bytes_and_gives_the_data_as_children() {
    let html = b"<html><style>a{background:url(data:image/gif;base64,R0lGODlhAQABAAAAACw=)}</style>\
        <img src='data:text/plain,hello%20you'><img src='data:;base64,!'><p style=\"b:url('data:text/csv,a,b')\">x";
    let steps = walk("x", html);
    assert_eq!(
        lines(&steps),
        ["0::+text/html", "1:part 1:image/gif", "1:part 2:text/plain", "1:part 3:broken", "1:part 4:text/csv"]
    );
    assert!(steps[0].part.keeps_payload);
    assert_eq!((steps[0].bytes.as_deref(), steps[0].text()), (Some(html.as_slice()), "x"));
    assert_eq!(steps[2].text(), "hello you");
    assert_eq!(steps[4].text(), "a,b");
}

#[test]
fn html_in_another_charset_is_decoded() {
    let html = b"<html><head><meta charset=iso-8859-1></head><body>caf\xe9";
    let steps = walk("x", html);
    assert_eq!((steps[0].text(), steps[0].meta("text.charset")), ("café", "windows-1252"));
    let xhtml = b"<?xml version='1.0'?><!DOCTYPE html><html xmlns='http://www.w3.org/1999/xhtml'><p>x</p></html>";
    assert_eq!(lines(&walk("x", xhtml)), ["0::application/xhtml+xml"]);
}

#[test]
fn a_markdown_text_may_begin_with_a_tag_and_a_declared_fragment_is_html() {
    let readme = b"<p align=center>x</p>\n\n# Title\n\nSee [this](docs/x.md).\n";
    assert_eq!(lines(&walk("x", readme)), ["0::text/markdown"]);
    let mail = b"From: a@b\nTo: c@d\nContent-Type: text/html\n\nhello <b>you</b>";
    let steps = walk("x", mail);
    assert_eq!((lines(&steps)[1].as_str(), steps[1].text()), ("1:part 1:text/html", "hello you"));
}

#[test]
fn xml_is_recognised_by_its_declaration_or_by_being_well_formed() {
    let steps = walk(
        "x",
        b"<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>\n<a>caf\xe9 <b>&lt;x&gt;</b>\n<p>1</p><p>2</p></a>",
    );
    assert_eq!((lines(&steps), steps[0].text()), (vec!["0::application/xml".to_owned()], "café <x> 1\n2"));
    assert_eq!(lines(&walk("x", b"<root><x>1</x></root>")), ["0::application/xml"]);
    for text in [b"<root><x>1</root>".as_slice(), b"<root/> and more", b"<root/><root/>", b"<root>"] {
        assert_eq!(lines(&walk("x", text)), ["0::text/plain"]);
    }
    let steps = walk("x", b"<?xml version=\"1.0\"?><a>text<b></a>");
    assert_eq!(lines(&steps), ["0::application/xml"]);
    assert!(!steps[0].meta("xml.damage").is_empty());
    assert_eq!(lines(&walk("x", b"<svg xmlns='http://www.w3.org/2000/svg'><p>x</p></svg>")), ["0::image/svg+xml"]);
}

#[test]
fn entities_that_a_document_defines_are_not_expanded() {
    let bomb = b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b 'xxxxxxxxxx'><!ENTITY c '&b;&b;&b;'>]><a>1&c;2</a>";
    assert_eq!(walk("x", bomb)[0].text(), "12");
}

#[test]
fn texts_are_decoded_and_recognised_by_content_whatever_their_names_are() {
    let steps = walk("photo.png", b"a,b\n1,2\n3,4\n");
    assert_eq!(lines(&steps), ["0::text/csv"]);
    assert_eq!(lines(&walk("x.pdf", b"{\"a\": 1}")), ["0::application/json"]);
    let utf16: Vec<u8> = "\u{feff}grüße".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let steps = walk("x", &utf16);
    assert_eq!((steps[0].text(), steps[0].meta("text.charset")), ("grüße", "utf-16le"));
    let steps = walk("x", b"Le caf\xe9 est ferm\xe9 jusqu'\xe0 demain.");
    assert_eq!(steps[0].text(), "Le café est fermé jusqu'à demain.");
}

#[test]
fn a_source_that_fails_is_a_failed_document() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone"))
        }
    }
    impl std::io::Seek for Broken {
        fn seek(&mut self, _: std::io::SeekFrom) -> std::io::Result<u64> {
            Ok(0)
        }
    }
    let mut dehydrator =
        penstock_documents::Dehydrator::new("x", Box::new(Broken), TestWorkspace::new(), Default::default());
    let Some(penstock_documents::Event::Leaf(part, None)) = dehydrator.next_event() else { panic!("one failed leaf") };
    assert_eq!(part.failure.unwrap().kind, FailureKind::Io);
    assert!(part.sha256.is_none() && dehydrator.next_event().is_none());
}
