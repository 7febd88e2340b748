//! The tables of right answers (contract §3 and §4), each row through the code that a run uses.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::decide::{Rule, Standing, Verdict};
use engine::judge::{ObjectLine, Reading};
use engine::score::{Direction, Score};
use serde_json::Value;

fn table(name: &str) -> Vec<Value> {
    let path = crate::support::source_tree().join("tests/cases").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn score(value: &Value) -> Option<Score> {
    value.as_f64().and_then(Score::new)
}

#[test]
fn every_reading_of_the_table() {
    for case in table("readings.json") {
        let why = case["why"].as_str().unwrap();
        let stdout = STANDARD.decode(case["stdout_base64"].as_str().unwrap()).unwrap();
        let mut line = ObjectLine::default();
        line.push(&stdout);
        let reading = Reading::of(&mut line, i32::try_from(case["exit"].as_i64().unwrap()).unwrap());
        let expect = &case["expect"];
        assert_eq!(Value::from(reading.valid), expect["valid"], "{why}");
        for (name, found) in [("score", reading.score), ("tiebreak", reading.tiebreak)] {
            if let Some(wanted) = expect.get(name) {
                assert_eq!(found, score(wanted), "{why}: {name}");
            }
        }
        if let Some(solved) = expect.get("solved") {
            assert_eq!(Value::from(reading.solved), *solved, "{why}");
        }
        if let Some(note) = expect.get("note") {
            assert_eq!(reading.note.as_deref(), note.as_str(), "{why}");
        }
        if let Some(detail) = expect.get("detail") {
            assert_eq!(reading.detail.as_ref(), detail.as_object(), "{why}");
        }
    }
}

#[test]
fn every_decision_of_the_table() {
    for case in table("decide.json") {
        let why = case["why"].as_str().unwrap();
        let direction = |key: &str| case[key].as_str().unwrap().parse::<Direction>().unwrap();
        let rule = Rule { direction: direction("direction"), tiebreak: direction("tiebreak_direction") };
        let best = score(&case["best"])
            .map(|score| Standing { score, tiebreak: self::score(&case["best_tiebreak"]) });
        let told = &case["reading"];
        let mut line = ObjectLine::default();
        line.push(told.to_string().as_bytes());
        let reading = Reading::of(&mut line, 0);
        let keep = matches!(rule.decide(&reading, best), Verdict::Keep { .. });
        assert_eq!(Value::from(keep), case["keep"], "{why}");
    }
}
