//! Turns what `git diff-tree` printed into the parts that a row of the log shows.
//! It refuses to know how git is run.

/// The most bytes of a diff that a row carries (N9).
pub const DIFF_LIMIT: usize = 200_000;

/// A candidate's difference from the best so far, cut to what a row carries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    /// The patch, at most [`DIFF_LIMIT`] bytes, cut between characters; bytes that are no UTF-8 are replaced.
    pub text: String,
    /// Whether `text` lacks part of the patch.
    pub cut: bool,
    /// git's `--stat` table, with its summary as the last line.
    pub stat: String,
    /// How long the whole output was, in bytes, before any cut.
    pub bytes: u64,
}

/// Splits the output of `diff-tree --stat --patch`, of which `head` is the beginning and `total` the length.
pub(super) fn split(head: &[u8], total: u64) -> Diff {
    let at = patch_start(head);
    let (stat, patch) = head.split_at(at);
    let whole = u64::try_from(head.len()).is_ok_and(|seen| seen == total);
    let lossy = String::from_utf8_lossy(patch);
    let text = cut_at_char(&lossy, DIFF_LIMIT);
    Diff {
        cut: !whole || text.len() < lossy.len(),
        text: text.to_owned(),
        stat: String::from_utf8_lossy(stat).trim_end().to_owned(),
        bytes: total,
    }
}

/// The longest prefix of `text` of at most `limit` bytes that ends between characters.
fn cut_at_char(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    end.and_then(|end| text.get(..end)).unwrap_or_default()
}

/// Where the patch starts. Lines of the table begin with a space, so its first line cannot be taken for one.
fn patch_start(head: &[u8]) -> usize {
    const START: &[u8] = b"diff --git ";
    if head.starts_with(START) {
        return 0;
    }
    let mut windows = head.windows(START.len() + 1);
    windows.position(|window| window.strip_prefix(b"\n") == Some(START)).map_or(head.len(), |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(output: &[u8]) -> Diff {
        split(output, u64::try_from(output.len()).unwrap())
    }

    #[test]
    fn table_and_patch_are_told_apart() {
        let stat = " a | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n\n";
        let patch = "diff --git a/a b/a\n--- a/a\n+++ b/a\n";
        for (head, expect_stat, expect_text) in [
            (format!("{stat}{patch}"), stat.trim_end(), patch),
            (patch.to_owned(), "", patch),
            (stat.to_owned(), stat.trim_end(), ""),
            (String::new(), "", ""),
        ] {
            let diff = whole(head.as_bytes());
            assert_eq!((diff.stat.as_str(), diff.text.as_str(), diff.cut), (expect_stat, expect_text, false));
        }
    }

    #[test]
    fn a_long_patch_is_cut_between_characters_and_says_so() {
        let patch = format!("diff --git a/a b/a\n+{}", "é".repeat(DIFF_LIMIT));
        let diff = whole(patch.as_bytes());
        assert!(diff.cut);
        assert_eq!(usize::try_from(diff.bytes).unwrap(), patch.len());
        assert!(diff.text.len() <= DIFF_LIMIT && diff.text.len() > DIFF_LIMIT - 2);
        assert!(diff.text.ends_with('é'));
    }

    #[test]
    fn replaced_bytes_count_against_the_limit() {
        let mut patch = b"diff --git a/a b/a\n+".to_vec();
        patch.resize(DIFF_LIMIT, 0xff);
        let diff = whole(&patch);
        assert!(diff.cut && diff.text.len() <= DIFF_LIMIT);
    }

    #[test]
    fn output_of_which_only_the_head_was_kept_is_marked_as_cut() {
        let diff = split(b"diff --git a/a b/a\n", 50_000_000);
        assert!(diff.cut);
        assert_eq!(diff.bytes, 50_000_000);
    }
}
