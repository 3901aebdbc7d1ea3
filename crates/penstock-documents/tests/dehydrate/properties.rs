//! Random trees of containers come apart into the same trees; for random bytes the API keeps its promises.

use proptest::prelude::*;

use crate::fuzzing::fuzz_dehydrate;
use crate::support::*;

/// A part as it was packed.
#[derive(Debug, Clone)]
enum Node {
    Leaf(Vec<u8>),
    Zip(Vec<Node>),
    Tar(Vec<Node>),
    Gzip(Box<Node>),
}

fn node() -> impl Strategy<Value = Node> {
    // The NUL makes sure that the bytes are neither text nor a container.
    let leaf = proptest::collection::vec(any::<u8>(), 0..300).prop_map(|mut bytes| {
        bytes.splice(0..0, *b"\0leaf");
        Node::Leaf(bytes)
    });
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Node::Zip),
            proptest::collection::vec(inner.clone(), 1..5).prop_map(Node::Tar),
            inner.prop_map(|node| Node::Gzip(Box::new(node))),
        ]
    })
}

fn pack(node: &Node) -> Vec<u8> {
    match node {
        Node::Leaf(bytes) => bytes.clone(),
        Node::Zip(nodes) => {
            let member = |(n, node)| Member::deflated(format!("m{n}"), pack(node));
            zip(&nodes.iter().enumerate().map(member).collect::<Vec<_>>())
        }
        Node::Tar(nodes) => {
            let members: Vec<(String, Vec<u8>)> =
                nodes.iter().enumerate().map(|(n, node)| (format!("m{n}"), pack(node))).collect();
            tar(&members.iter().map(|(name, data)| (name.as_str(), data.as_slice())).collect::<Vec<_>>())
        }
        Node::Gzip(node) => gzip(Some("m0"), &pack(node)),
    }
}

/// List the expected parts: each path, with the bytes if it is a leaf.
fn expect(node: &Node, path: &str, out: &mut Vec<(String, Option<Vec<u8>>)>) {
    let children = match node {
        Node::Leaf(bytes) => {
            out.push((path.to_owned(), Some(bytes.clone())));
            return;
        }
        Node::Zip(nodes) | Node::Tar(nodes) => nodes.as_slice(),
        Node::Gzip(node) => std::slice::from_ref(node.as_ref()),
    };
    out.push((path.to_owned(), None));
    for (n, child) in children.iter().enumerate() {
        expect(child, &format!("{path}/m{n}"), out);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_comes_apart_into_what_it_was_made_of(root in node()) {
        let mut expected = Vec::new();
        expect(&root, "", &mut expected);
        let steps = walk("root", &pack(&root));
        let seen: Vec<_> = steps
            .into_iter()
            .filter(|step| !matches!(step.kind, Kind::Leave(_)))
            .map(|step| (step.part.path.iter().map(|name| format!("/{name}")).collect::<String>(), step.bytes))
            .collect();
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn bytes_behind_a_mark_hold_every_promise(mark in 0..12_usize, bytes: Vec<u8>) {
        let marks: [&[u8]; 12] = [
            b"", b"PK\x03\x04", b"\x1f\x8b\x08", b"BZh91AY&SY", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"%PDF-",
            b"From: a@b\nTo: c@d\n", b"<html>", b"<?xml?><a>", b"{", b"From a 10:00 2026\nA: b\n",
        ];
        fuzz_dehydrate(&[marks[mark], bytes.as_slice()].concat());
    }

    #[test]
    fn texts_hold_every_promise(text in "(From: a@b\nTo: c\n)?[-<>a-c=\"'!/&;:, \n#\\[\\](){}|]{0,300}") {
        fuzz_dehydrate(text.as_bytes());
    }

    #[test]
    fn any_text_is_its_own_text(text in "[a-zà-ÿ \n]{0,200}") {
        let steps = walk("x", text.as_bytes());
        prop_assert_eq!(steps[0].text(), &text);
    }
}
