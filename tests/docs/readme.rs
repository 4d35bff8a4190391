//! What README.md shows of the configuration.

use super::read;
use super::table::{quoted, rows};

/// The block of YAML in README.md whose first line is this.
fn block(first: &str) -> String {
    let readme = read("README.md");
    let blocks = readme.split("```yaml\n").skip(1);
    let mut blocks = blocks.filter_map(|rest| rest.split("```").next());
    let found = blocks.find(|block| block.starts_with(first));
    found
        .unwrap_or_else(|| panic!("no block that begins with {first}"))
        .to_owned()
}

#[test]
fn f6_the_readme_shows_the_defaults_of_the_firewall() {
    let documented = rows(&read("docs/configuration.md"));
    let mut seen = 0;
    for line in block("firewall:                       # the defaults\n")
        .lines()
        .skip(1)
    {
        let setting = line.split('#').next().unwrap_or_default().trim();
        let (key, value) = setting.split_once(": ").unwrap();
        let key = format!("firewall.{key}");
        let row = documented.iter().find(|row| row.key == key);
        let row = row.unwrap_or_else(|| panic!("{key} is no setting"));
        assert_eq!(quoted(&row.default), Some(value), "{key}");
        seen += 1;
    }
    assert!(seen >= 10, "{seen} settings");
}
