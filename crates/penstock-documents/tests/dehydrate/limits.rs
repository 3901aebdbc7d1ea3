//! Exceeding any limit results in a failed part; its siblings are unaffected.

use std::time::Duration;

use penstock_documents::{FailureKind, Limits};

use crate::support::*;

fn walk_limited(name: &str, bytes: &[u8], limits: Limits) -> Vec<Step> {
    walk_within(name, bytes, TestWorkspace::new(), limits)
}

#[test]
fn containers_below_the_deepest_level_are_not_entered() {
    let mut bytes = b"core".to_vec();
    for _ in 0..9 {
        bytes = gzip(None, &bytes);
    }
    let steps = walk("x", &bytes);
    let last = steps.iter().rfind(|step| step.kind == Kind::Leaf).unwrap();
    assert_eq!((last.part.depth, last.failure().0), (7, FailureKind::TooDeep));
    assert!(last.bytes.is_some(), "its bytes are there, only its children are not");
    assert_eq!(steps.iter().filter(|step| matches!(step.kind, Kind::Leave(1))).count(), 7);
}

#[test]
fn a_part_that_is_no_container_may_lie_at_the_deepest_level() {
    let mut bytes = b"core".to_vec();
    for _ in 0..7 {
        bytes = gzip(None, &bytes);
    }
    let steps = walk("x", &bytes);
    let core = steps.iter().find(|step| step.part.depth == 7).unwrap();
    assert_eq!((core.line().as_str(), core.text()), ("7:part 1:text/plain", "core"));
}

#[test]
fn what_inflates_too_much_is_a_bomb() {
    let zeros = vec![0; 4 << 20];
    let steps = walk("a.zip", &zip(&[Member::deflated("bomb", &zeros), Member::stored("fine", "x")]));
    assert_eq!(lines(&steps)[1..], ["1:bomb:limit", "1:fine:text/plain"]);
    assert!(steps[1].failure().1.contains("1000 times"), "{:?}", steps[1].part);
    for bytes in [gzip(None, &zeros), bzip2(&zeros), xz(&zeros), zstd(&zeros)] {
        assert_eq!(walk("x", &bytes)[1].failure().0, FailureKind::Limit);
    }
    // Small parts of zeros are not bombs.
    assert!(walk("x", &zstd(&zeros[..1 << 20]))[1].part.failure.is_none());
}

#[test]
fn a_part_and_a_document_have_so_many_bytes_at_most() {
    let data = noise(1000);
    let bytes = tar(&[("a", &data[..400]), ("b", &data), ("c", &data[..400]), ("d", &data[..400])]);
    let steps = walk_limited("x", &bytes, Limits { max_inflated: 500, ..Limits::default() });
    assert_eq!(
        lines(&steps)[1..],
        ["1:a:application/octet-stream", "1:b:limit", "1:c:application/octet-stream", "1:d:application/octet-stream"]
    );
    let steps = walk_limited("x", &bytes, Limits { max_total_inflated: 1500, ..Limits::default() });
    assert_eq!(lines(&steps)[3..], ["1:c:limit", "1:d:limit"]);
}

#[test]
fn a_declared_size_beyond_the_limit_is_refused_before_anything_is_inflated() {
    let mut member = Member::deflated("big", noise(100_000));
    member.size = 2_000_000_000;
    let workspace = TestWorkspace::new();
    let spools = workspace.spools.clone();
    let steps = walk_within("x", &zip(&[member]), workspace, Limits { max_inflated: 1 << 30, ..Limits::default() });
    assert_eq!(steps[1].failure().0, FailureKind::Limit);
    assert_eq!(spools.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn only_so_many_children_are_given_and_one_part_says_so() {
    let members: Vec<Member> = (0..20).map(|n| Member::stored(format!("{n}"), "x")).collect();
    let limits = Limits { max_children: 5, ..Limits::default() };
    let steps = walk_limited("x", &zip(&members), limits.clone());
    assert_eq!(steps.len(), 1 + 5 + 1);
    assert_eq!(steps[5].line(), "1:part 5:limit");
    assert!(steps[5].failure().1.contains("more than 5 children") && steps[5].failure().1.contains("of 20"));
    assert_eq!(steps[6].kind, Kind::Leave(5));
    assert_eq!(lines(&walk_limited("x", &zip(&members[..5]), limits)).len(), 6);
}

#[test]
fn how_many_children_depends_on_the_size() {
    let limits = Limits::default();
    assert_eq!(limits.children_of(0), 1000);
    assert_eq!(limits.children_of((1 << 20) + 1), 2000);
    assert_eq!(limits.children_of(u64::MAX), 1_000_000);
}

#[test]
fn a_part_that_takes_too_long_fails_and_its_siblings_live() {
    let mut workspace = TestWorkspace::new();
    workspace.tick = 400;
    let bytes = tar(&[("slow", &noise(500_000)), ("fast", b"x")]);
    let limits = Limits { part_time: Duration::from_secs(2), ..Limits::default() };
    let steps = walk_within("x", &bytes, workspace, limits);
    assert_eq!(lines(&steps)[1..], ["1:slow:timed out", "1:fast:text/plain"]);
}

#[test]
fn the_text_of_a_part_is_cut_but_its_bytes_are_whole() {
    let text = "é".repeat(1000);
    let steps = walk_limited("x", text.as_bytes(), Limits { max_text: 101, ..Limits::default() });
    assert_eq!((steps[0].text().len(), steps[0].meta("text.cut"), steps[0].part.bytes), (100, "true", Some(2000)));
    let html = format!("<html><p>{text}");
    let steps = walk_limited("x", html.as_bytes(), Limits { max_text: 101, ..Limits::default() });
    assert_eq!((steps[0].text().len(), steps[0].meta("text.cut")), (100, "true"));
}

#[test]
fn a_character_that_would_fit_after_the_cut_is_left_out() {
    for markup in ["<html><p>aaa&eacute;b", "<?xml version='1.0'?><a>aaa&#233;b</a>"] {
        let steps = walk_limited("x", markup.as_bytes(), Limits { max_text: 4, ..Limits::default() });
        assert_eq!((steps[0].text(), steps[0].meta("text.cut")), ("aaa", "true"));
    }
    let title = "a".repeat(4095);
    let steps = walk("x", format!("<html><title>{title}&eacute;b</title>").as_bytes());
    assert_eq!(steps[0].meta("html.title"), title);
}

#[test]
fn the_text_of_markup_that_is_not_searched_to_its_end_is_cut() {
    let limits = Limits { max_markup: 1000, ..Limits::default() };
    let blanks = " ".repeat(5000);
    for markup in [format!("<html><p>x{blanks}y"), format!("<?xml version='1.0'?><a>x{blanks}y</a>")] {
        let steps = walk_limited("x", markup.as_bytes(), limits.clone());
        assert_eq!((steps[0].text(), steps[0].meta("text.cut")), ("x", "true"));
    }
    let whole = format!("<html><p>x{}", " ".repeat(990));
    assert_eq!(walk_limited("x", whole.as_bytes(), limits)[0].meta("text.cut"), "");
}

#[test]
fn html_beyond_what_is_searched_says_that_data_may_be_missing() {
    let html = format!("<html><img src='data:,x'>{}", " ".repeat(5000));
    let steps = walk_limited("x", html.as_bytes(), Limits { max_markup: 1000, ..Limits::default() });
    assert_eq!(lines(&steps)[1..], ["1:part 1:text/plain", "1:part 2:limit"]);
}

#[test]
fn html_at_the_deepest_level_is_too_deep_only_if_data_was_found() {
    let limits = Limits { max_depth: 0, max_markup: 1000, ..Limits::default() };
    let blanks = " ".repeat(5000);
    let steps = walk_limited("x", format!("<html><img src='data:,x'>{blanks}").as_bytes(), limits.clone());
    assert_eq!(lines(&steps), ["0::too deep"]);
    let html = format!("<html><p>x{blanks}");
    let steps = walk_limited("x", html.as_bytes(), limits.clone());
    assert_eq!((lines(&steps), steps[0].text()), (vec!["0::limit".to_owned()], "x"));
    assert_eq!(steps[0].failure().1, "the document's last 4010 bytes were not searched for embedded data");
    assert_eq!(steps[0].bytes.as_deref(), Some(html.as_bytes()));
    assert_eq!(lines(&walk_limited("x", b"<html><p>x", limits)), ["0::text/html"]);
}

#[test]
fn a_directory_full_of_entries_takes_no_memory_before_it_is_walked() {
    // The end record states more entries than there are.
    let mut bytes = zip(&[Member::stored("a", "x")]);
    let at = bytes.len() - 22 + 10;
    bytes[at..at + 2].copy_from_slice(&60_000_u16.to_le_bytes());
    let steps = walk("x", &bytes);
    assert_eq!(lines(&steps)[1..], ["1:a:text/plain", "1:part 2:broken"]);
}

#[test]
fn a_long_name_is_cut() {
    let steps = walk("x", &zip(&[Member::stored("n".repeat(5000), "x")]));
    assert_eq!(steps[1].part.path[0].len(), 4096);
}
