//! Any text at all.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn no_text_makes_it_panic_and_every_span_is_in_the_text(text in manifest_like()) {
        check_any(&text)?;
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Err(errors) = Manifest::parse_bytes("c.toml", &bytes) {
            prop_assert!(!errors.diagnostics().is_empty());
            errors.to_string();
        }
    }
}

fn check_any(text: &str) -> Result<(), TestCaseError> {
    let (source, diagnostics) = match Manifest::parse("c.toml", text) {
        Ok(manifest) => (manifest.source().clone(), manifest.warnings().to_vec()),
        Err(errors) => {
            prop_assert!(!errors.diagnostics().is_empty());
            (errors.source().clone(), errors.diagnostics().to_vec())
        }
    };
    for diagnostic in &diagnostics {
        let related = diagnostic.related.iter().map(|(span, _)| span);
        for span in [&diagnostic.span].into_iter().chain(related) {
            prop_assert!(source.text().get(span.clone()).is_some(), "{span:?} in {text:?}");
        }
    }
    diag::render(&source, &diagnostics, Style::Plain);
    Ok(())
}

/// Texts of words that manifests are made of, with anything in between.
fn manifest_like() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        4 => proptest::sample::select(vec![
            "[repo]\n", "[workspace]\n", "[agent]\n", "[agent.env]\n", "[judge]\n", "[world]\n", "[[workspace.inject]]\n",
            "[agent.openshell]\n", "[workflow]\n", "[[workflow.task]]\n", "kind", "op", "source", "depends_on", "\"engine\"",
            "[[agent.relay]]\n", "[agent.broker]\n", "[outputs.image-push]\n", "[[capabilities.secret]]\n",
            "dest", "template", "\"${env:A}${\"", "mode", "count", "target", "fixed", "open", "scope", "param", "context", "name",
            "\"decide\"", "session", "toolbox_dir", "requires", "[agent.openshell.limits]\n", "inherit_defaults", "endpoints", "read_only_paths", "limits",
            "memory", "cpus", "processes", "\"openshell\"", "harness", "\"/opt\"", "\"8G\"", "0.5", "-1", "inf",
            "path", "url", "ref", "dir", "inject", "src", "dst", "frozen", "timeout", "direction", "measure_cmd",
            "backend", "agent_cmd", "goal", "env.", " = ", "=", "\"", "\"\"\"", "'", "[", "]", "{", "}", ",", ".", "\n",
            "\r\n", "\"x\"", "\"command\"", "\"lower\"", "\".\"", "\"1m\"", "1", "nan", "true", "#", "\\u0000", "é", "\u{feff}",
        ]).prop_map(str::to_owned),
        1 => ".{0,6}",
    ];
    proptest::collection::vec(word, 0..40).prop_map(|words| words.concat())
}
