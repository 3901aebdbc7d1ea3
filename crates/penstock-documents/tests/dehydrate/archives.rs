//! Zip, tar and compressed streams.

use std::io::Write;

use penstock_documents::FailureKind;

use crate::support::*;

#[test]
fn a_document_that_is_no_container_is_one_leaf_with_an_empty_path() {
    let steps = walk("x.txt", b"hello");
    assert_eq!(lines(&steps), ["0::text/plain"]);
    assert_eq!((steps[0].text(), steps[0].bytes.as_deref()), ("hello", Some(b"hello".as_slice())));
    assert_eq!(lines(&walk("empty", b"")), ["0::text/plain"]);
    assert_eq!(lines(&walk("x", b"\0\x01\x02")), ["0::application/octet-stream"]);
}

#[test]
fn a_zip_gives_its_members_in_the_order_of_its_directory_and_no_directories() {
    let members = [Member::stored("b/", ""), Member::deflated("b/c.txt", "c"), Member::stored("a.txt", "a")];
    let bytes = zip(&members);
    let steps = walk("a.zip", &bytes);
    assert_eq!(lines(&steps), ["0::+application/zip", "1:b/c.txt:text/plain", "1:a.txt:text/plain"]);
    assert_eq!(steps[0].part.bytes, Some(bytes.len() as u64));
    assert!(steps[0].bytes.is_none() && !steps[0].part.keeps_payload);
    assert_eq!(steps[3].kind, Kind::Leave(2));
    assert_eq!(find(&steps, "b/c.txt").bytes.as_deref(), Some(b"c".as_slice()));
}

#[test]
fn names_are_kept_as_they_are_and_never_used() {
    let names: [&[u8]; 6] = [b"/etc/passwd", b"../../x", b"same", b"same", b"caf\xe9", b""];
    let members: Vec<Member> = names.iter().map(|name| Member::stored(name, "x")).collect();
    let steps = walk("a.zip", &zip(&members));
    let seen: Vec<&str> = steps[1..7].iter().map(|step| step.part.path[0].as_str()).collect();
    assert_eq!(seen, ["/etc/passwd", "../../x", "same", "same", r"caf\xe9", "part 6"]);
}

#[test]
fn zip_members_of_every_method_are_read() {
    let plain = b"some text, some text, some text".repeat(20);
    let mut lzma = vec![9, 20, 5, 0];
    let options = liblzma::stream::LzmaOptions::new_preset(1).unwrap();
    let stream = liblzma::stream::Stream::new_lzma_encoder(&options).unwrap();
    let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
    encoder.write_all(&plain).unwrap();
    let file = encoder.finish().unwrap();
    // An .lzma file's header has the properties and the size; a zip member has only the properties.
    lzma.extend(&file[..5]);
    lzma.extend(&file[13..]);
    let mut marked = Member::packed("lzma", 14, lzma, &plain);
    marked.flags = 2;
    let members = [
        Member::stored("stored", &plain),
        Member::deflated("deflated", &plain),
        Member::packed("bzip2", 12, bzip2(&plain), &plain),
        marked,
        Member::packed("zstd", 93, zstd(&plain), &plain),
        Member::packed("xz", 95, xz(&plain), &plain),
    ];
    let steps = walk("a.zip", &zip(&members));
    // A deflate stream without matches of full length is also a deflate64 stream.
    let short = Member { method: 9, ..Member::deflated("x", "some text, some text") };
    assert_eq!(walk("a.zip", &zip(&[short]))[1].text(), "some text, some text");
    for member in &members {
        let step = find(&steps, std::str::from_utf8(&member.name).unwrap());
        assert_eq!(step.bytes.as_deref(), Some(plain.as_slice()), "{:?}", step.part);
    }
}

#[test]
fn a_zip_that_a_library_wrote_is_read_with_its_zip64_fields() {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().large_file(true);
    writer.start_file("big.txt", options).unwrap();
    writer.write_all(b"not so big").unwrap();
    writer.add_symlink("link", "../target", options).unwrap();
    let bytes = writer.finish().unwrap().into_inner();
    let steps = walk("a.zip", &bytes);
    assert_eq!(lines(&steps), ["0::+application/zip", "1:big.txt:text/plain", "1:link:inode/symlink"]);
    assert_eq!(find(&steps, "link").bytes.as_deref(), Some(b"../target".as_slice()));
}

#[test]
fn what_stands_before_or_behind_a_zip_does_not_hide_it() {
    let mut bytes = zip(&[Member::stored("a", "x")]);
    let mut prefixed = bytes.clone();
    // Offsets count from the archive's own beginning.
    prefixed.splice(0..0, bytes.clone());
    assert_eq!(lines(&walk("a.zip", &prefixed)), ["0::+application/zip", "1:a:text/plain"]);
    let comment = bytes.len() - 2;
    bytes[comment] = 3;
    bytes.extend(b"hey");
    assert_eq!(lines(&walk("a.zip", &bytes)), ["0::+application/zip", "1:a:text/plain"]);
}

#[test]
fn a_damaged_member_fails_and_its_siblings_live() {
    let mut encrypted = Member::stored("encrypted", "x");
    encrypted.flags = 1;
    let mut wrong = Member::deflated("crc", "hello");
    wrong.crc ^= 1;
    let mut long = Member::stored("long", "hello");
    long.size = 4;
    let mut short = Member::stored("short", "hello");
    short.size = 6;
    let members = [
        encrypted,
        wrong,
        long,
        short,
        Member::packed("method", 7, b"x".to_vec(), b"x"),
        Member::packed("broken", 8, b"\xff\xff".to_vec(), b"x"),
        Member::stored("fine", "fine"),
    ];
    let steps = walk("a.zip", &zip(&members));
    let kinds: Vec<FailureKind> = steps[1..7].iter().map(|step| step.failure().0).collect();
    use FailureKind::{Broken, Encrypted, Unsupported};
    assert_eq!(kinds, [Encrypted, Broken, Broken, Broken, Unsupported, Broken]);
    assert!(steps[1..7].iter().all(|step| step.part.sha256.is_none() && step.bytes.is_none()));
    assert_eq!(find(&steps, "encrypted").failure().1, "the member is encrypted");
    assert_eq!(find(&steps, "crc").failure().1, "the CRC does not match");
    assert_eq!(find(&steps, "fine").text(), "fine");
}

#[test]
fn a_zip_without_a_directory_is_a_failed_leaf_with_its_own_bytes() {
    let bytes = zip(&[Member::stored("a", "hello")]);
    let cut = &bytes[..bytes.len() - 30];
    let steps = walk("a.zip", cut);
    assert_eq!(lines(&steps), ["0::broken"]);
    assert_eq!(steps[0].part.media_type, "application/zip");
    assert_eq!(steps[0].bytes.as_deref(), Some(cut));
}

#[test]
fn damage_within_a_directory_leaves_the_members_before_it() {
    let mut bytes = zip(&[Member::stored("a", "x"), Member::stored("b", "y")]);
    let second = bytes.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
    bytes[second] = 0;
    let steps = walk("a.zip", &bytes);
    assert_eq!(lines(&steps), ["0::+application/zip", "1:a:text/plain", "1:part 2:broken"]);
}

#[test]
fn overlapping_members_fail_but_the_first_lives() {
    let members = [Member::stored("a", "hello")];
    let same = [Member::stored("b", "hello")];
    let steps = walk("a.zip", &zip_with(&members, &same));
    assert_eq!(lines(&steps), ["0::+application/zip", "1:a:text/plain", "1:b:broken"]);
    assert!(steps[2].failure().1.contains("overlaps"));
}

#[test]
fn office_documents_and_books_are_recognised_by_their_members() {
    let types = |kind: &str| {
        format!("<?xml version=\"1.0\"?><Types><Override PartName=\"/m.xml\" ContentType=\"{kind}\"/></Types>")
    };
    let docx = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
    let body =
        "<?xml version=\"1.0\"?><w:document><w:p><w:t>Hel</w:t><w:t>lo &amp; you</w:t></w:p><w:p>2</w:p></w:document>";
    let members = [
        Member::deflated("[Content_Types].xml", types(&format!("{docx}.main+xml"))),
        Member::deflated("word/document.xml", body),
    ];
    let steps = walk("renamed.bin", &zip(&members));
    assert_eq!(steps[0].part.media_type, docx);
    assert_eq!(find(&steps, "word/document.xml").text(), "Hello & you\n2");
    assert_eq!(find(&steps, "word/document.xml").part.media_type, "application/xml");
    let kind = |members: &[Member]| walk("x", &zip(members))[0].part.media_type.clone();
    let macros = types("application/vnd.ms-excel.sheet.macroEnabled.main+xml");
    assert_eq!(
        kind(&[Member::stored("[Content_Types].xml", macros)]),
        "application/vnd.ms-excel.sheet.macroEnabled.12"
    );
    assert_eq!(kind(&[Member::stored("mimetype", "application/epub+zip")]), "application/epub+zip");
    assert_eq!(kind(&[Member::stored("mimetype", "no type")]), "application/zip");
    assert_eq!(kind(&[Member::stored("META-INF/MANIFEST.MF", "x")]), "application/java-archive");
}

#[test]
fn a_compressed_tar_is_two_steps() {
    let inner = tar(&[("x", b"hello"), ("d/y", b"\0\x01")]);
    for (name, bytes) in [
        ("a.tar.gz", gzip(None, &inner)),
        ("a.tgz", gzip(None, &inner)),
        ("a.tar.bz2", bzip2(&inner)),
        ("a.tar.xz", xz(&inner)),
        ("a.tar.zst", zstd(&inner)),
    ] {
        let steps = walk(name, &bytes);
        assert_eq!(
            lines(&steps)[1..],
            ["1:a.tar:+application/x-tar", "2:x:text/plain", "2:d/y:application/octet-stream"]
        );
        assert_eq!(steps[2].part.path, ["a.tar", "x"]);
    }
    let steps = walk("a", &gzip(Some("given"), b"hello"));
    assert_eq!(lines(&steps), ["0::+application/gzip", "1:given:text/plain"]);
    assert_eq!(lines(&walk("a", &xz(b"hello")))[1], "1:part 1:text/plain");
}

#[test]
fn streams_of_several_members_are_one_stream() {
    let joined = |pack: &dyn Fn(&[u8]) -> Vec<u8>| [pack(b"one "), pack(b""), pack(b"two")].concat();
    let mut padded = gzip(None, b"one two");
    padded.extend([0; 100]);
    for bytes in [joined(&|data| gzip(None, data)), joined(&bzip2), joined(&xz), joined(&zstd), padded] {
        assert_eq!(walk("x", &bytes)[1].bytes.as_deref(), Some(b"one two".as_slice()));
    }
}

#[test]
fn a_stream_that_is_cut_or_followed_by_something_fails() {
    let plain = noise(100_000);
    for bytes in [gzip(None, &plain), bzip2(&plain), xz(&plain), zstd(&plain)] {
        let steps = walk("x", &bytes[..bytes.len() - 3]);
        assert_eq!(steps[1].failure().0, FailureKind::Broken);
        assert!(steps[1].part.sha256.is_none() && steps[1].bytes.is_none());
        assert_eq!(steps[2].kind, Kind::Leave(1));
        let steps = walk("x", &[bytes.as_slice(), b"rest"].concat());
        assert_eq!(steps[1].failure().0, FailureKind::Broken);
    }
}

#[test]
fn links_and_special_files_of_a_tar_are_parts_that_are_never_followed() {
    let mut bytes = tar_entry(b'5', b"dir/", b"", b"");
    bytes.extend(tar_entry(b'2', b"sym", b"/etc/passwd", b""));
    bytes.extend(tar_entry(b'1', b"hard", b"../x", b""));
    bytes.extend(tar_entry(b'6', b"fifo", b"", b""));
    bytes.extend(tar_entry(b'3', b"char", b"", b""));
    bytes.extend(tar_entry(b'0', b"caf\xe9", b"", b"x"));
    bytes.extend([0; 1024]);
    let steps = walk("a.tar", &bytes);
    assert_eq!(
        lines(&steps)[1..],
        [
            "1:sym:inode/symlink",
            "1:hard:inode/symlink",
            "1:fifo:inode/fifo",
            "1:char:inode/chardevice",
            r"1:caf\xe9:text/plain"
        ]
    );
    assert_eq!(find(&steps, "sym").bytes.as_deref(), Some(b"/etc/passwd".as_slice()));
    assert_eq!(find(&steps, "hard").meta("tar.link"), "hard");
}

#[test]
fn a_hard_link_with_data_is_a_part_with_these_bytes_and_the_walk_goes_on_behind_them() {
    let data = noise(600);
    let mut bytes = tar_entry(b'0', b"first", b"", &data);
    bytes.extend(tar_entry(b'x', b"pax", b"", b"13 path=hard\n"));
    bytes.extend(tar_entry(b'1', b"short", b"first", &data));
    bytes.extend(tar_entry(b'0', b"after", b"", b"x"));
    bytes.extend([0; 1024]);
    let steps = walk("a.tar", &bytes);
    assert_eq!(
        lines(&steps)[1..],
        ["1:first:application/octet-stream", "1:hard:application/octet-stream", "1:after:text/plain"]
    );
    assert_eq!(find(&steps, "hard").bytes.as_deref(), Some(data.as_slice()));
    assert_eq!(find(&steps, "hard").meta("tar.link"), "hard");
    // The archive ends within the data.
    assert_eq!(lines(&walk("a.tar", &bytes[..3500]))[2..], ["1:hard:broken"]);
}

#[test]
fn a_hard_link_that_states_the_size_of_its_file_needs_no_data() {
    let mut link = tar_entry(b'1', b"hard", b"first", b"hello");
    link.truncate(512);
    let mut bytes = tar_entry(b'0', b"first", b"", b"hello");
    bytes.extend(&link);
    bytes.extend(tar_entry(b'0', b"after", b"", b"x"));
    bytes.extend([0; 1024]);
    let steps = walk("a.tar", &bytes);
    assert_eq!(lines(&steps)[1..], ["1:first:text/plain", "1:hard:inode/symlink", "1:after:text/plain"]);
    assert_eq!(find(&steps, "hard").bytes.as_deref(), Some(b"first".as_slice()));
    link.extend([0; 1024]);
    assert_eq!(lines(&walk("a.tar", &link))[1..], ["1:hard:inode/symlink"]);
}

#[test]
fn a_directory_of_an_old_tar_is_known_by_its_slash_and_is_no_part() {
    let mut bytes: Vec<u8> = Vec::new();
    for (name, data) in [("dir/", ""), ("dir/x", "x"), ("odd/", "data")] {
        let mut header = tar::Header::new_old();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(data.len() as u64);
        header.set_cksum();
        bytes.extend(header.as_bytes());
        bytes.extend(data.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.extend([0; 1024]);
    assert_eq!(lines(&walk("a.tar", &bytes))[1..], ["1:dir/x:text/plain", "1:odd/:text/plain"]);
}

#[test]
fn long_names_of_gnu_and_pax_are_the_names() {
    let long = format!("{}/x", "d".repeat(300));
    let steps = walk("a.tar", &tar(&[(&long, b"x")]));
    assert_eq!(steps[1].part.path, [long]);
    let record = b"15 path=p\xc3\xa4x/y\n".to_vec();
    let record = [format!("{} ", record.len() - 3 + 3).as_bytes(), &record[3..]].concat();
    let mut bytes = tar_entry(b'x', b"pax", b"", &record);
    bytes.extend(tar_entry(b'0', b"short", b"", b"hello"));
    bytes.extend([0; 1024]);
    let steps = walk("a.tar", &bytes);
    assert_eq!(lines(&steps)[1..], ["1:päx/y:text/plain"]);
}

#[test]
fn sparse_members_are_refused_and_their_siblings_live() {
    let mut bytes = tar_entry(b'S', b"sparse", b"", b"data");
    let record = b"22 GNU.sparse.major=1\n";
    bytes.extend(tar_entry(b'x', b"pax", b"", record));
    bytes.extend(tar_entry(b'0', b"too", b"", b"data"));
    bytes.extend(tar_entry(b'0', b"fine", b"", b"fine"));
    bytes.extend([0; 1024]);
    let steps = walk("a.tar", &bytes);
    assert_eq!(lines(&steps)[1..], ["1:sparse:unsupported", "1:too:unsupported", "1:fine:text/plain"]);
}

#[test]
fn damage_within_a_tar_leaves_the_members_before_it_and_one_part_for_the_rest() {
    let mut bytes = tar(&[("a", b"x"), ("b", b"y"), ("c", b"z")]);
    bytes[1024 + 5] ^= 1;
    let steps = walk("a.tar", &bytes);
    assert_eq!(lines(&steps)[1..], ["1:a:text/plain", "1:part 2:broken"]);
    assert!(steps[2].failure().1.starts_with("no header at byte 1024"));
    let whole = tar(&[("a", b"x"), ("b", &noise(2000))]);
    assert_eq!(lines(&walk("a.tar", &whole[..2000]))[1..], ["1:a:text/plain", "1:b:broken"]);
    assert_eq!(lines(&walk("a.tar", &whole[..1024]))[1..], ["1:a:text/plain", "1:part 2:broken"]);
}

#[test]
fn tars_that_were_put_one_behind_the_other_are_read_to_the_end() {
    let bytes = [tar(&[("a", b"x")]), tar(&[("b", b"y")])].concat();
    assert_eq!(lines(&walk("a.tar", &bytes))[1..], ["1:a:text/plain", "1:b:text/plain"]);
}
