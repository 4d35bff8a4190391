#![allow(clippy::unwrap_used)]

use super::load_texts;
use crate::control::resolve::Endpoints;

/// The warnings about routes, one a line in flow style, in a pool of so many reactors.
fn warnings(pool: usize, routes: &[&str]) -> Vec<String> {
    let config = format!("server: {{worker_pool_size: {pool}}}\n");
    let list = routes.iter().map(|route| format!("  - {{{route}}}\n"));
    let routes = format!("routes:\n{}", list.collect::<String>());
    let loaded = load_texts(&config, Some(&routes), &mut Endpoints::default()).unwrap();
    let said = loaded.warnings.iter();
    said.map(|w| w.to_string().replace("routes.yaml:", ""))
        .collect()
}

const UPLOAD: &str = "prefix: /upload, target: http://a, max_body_bytes: 5MiB";
const REPORT: &str = "prefix: /report, target: http://a, response_header_timeout: 60s";

#[test]
fn i15_a_guardrail_that_tunnels_can_fill_is_pointed_out() {
    let tunnels = "upgraded connections hold their slot until they end: the cap of the guardrail \
                   can be filled by tunnels (set max_concurrency)";
    assert_eq!(warnings(128, &[UPLOAD]), [format!("2:5: {tunnels}")]);
    // With a cap of its own somebody has thought about it; a fixed answer is no tunnel.
    let capped = format!("{UPLOAD}, max_concurrency: 32");
    let fixed = "status: 200, max_body_bytes: 5MiB";
    let usual = "prefix: /usual, target: http://a";
    assert!(warnings(128, &[&capped, fixed, usual]).len() == 1);
    assert!(warnings(128, &[&capped, usual]).is_empty());
}

#[test]
fn i16_caps_of_all_elevated_routes_beyond_a_quarter_of_the_pool_are_pointed_out() {
    let sum = |caps: u32, quarter: u32| {
        format!(
            "the caps of all routes that ask for more than the defaults add up to {caps}, more than \
             a quarter of worker_pool_size ({quarter})"
        )
    };
    let cap = |route: &str, cap: i32| format!("{route}, max_concurrency: {cap}");
    // Together, at the last of them.
    let both = [cap(UPLOAD, 20), cap(REPORT, 13)];
    let both: Vec<&str> = both.iter().map(String::as_str).collect();
    assert_eq!(warnings(128, &both), [format!("3:5: {}", sum(33, 32))]);
    assert!(warnings(132, &both).is_empty());
    // The guardrail's own count as well: two of them are more than a quarter.
    let said = warnings(128, &[UPLOAD, REPORT]);
    assert!(said.contains(&format!("3:5: {}", sum(64, 32))), "{said:?}");
    // A pool of three has no quarter, and the guardrail's least is 1.
    assert!(warnings(3, &[UPLOAD]).contains(&format!("2:5: {}", sum(1, 0))));
    // Routes that are not elevated may have any cap.
    let usual = "prefix: /usual, target: http://a, max_concurrency: 1000";
    assert!(warnings(128, &[usual]).is_empty());
}

#[test]
fn i16_opting_out_of_the_guardrail_is_pointed_out() {
    let text =
        "max_concurrency: -1 leaves a route that asks for more than the defaults without any \
                cap";
    for elevated in [UPLOAD, REPORT] {
        let said = warnings(128, &[&format!("{elevated}, max_concurrency: -1")]);
        assert!(said.len() == 1 && said[0].ends_with(text), "{said:?}");
    }
    // Where there is no guardrail, nothing is given up.
    let usual = "target: http://a, max_concurrency: -1";
    assert!(warnings(128, &[usual]).is_empty());
}
