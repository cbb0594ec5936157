extension Group {
  static let ccFreshness = Group(
    id: "cc-freshness", count: 24,
    cases: [
      Case("freshness-none", [], .asked),
      Case("freshness-max-age", ["Cache-Control: max-age=3600"], .cached),
      Case("freshness-max-age-stale", ["Cache-Control: max-age=2", .date()], after: 3, .asked),
      Case("freshness-max-age-0", ["Cache-Control: max-age=0"], .asked),
      Case("freshness-max-age-max-minus-1", ["Cache-Control: max-age=2147483647"], .cached),
      Case("freshness-max-age-max", ["Cache-Control: max-age=2147483648"], .cached),
      Case("freshness-max-age-max-plus-1", ["Cache-Control: max-age=2147483649"], .cached),
      Case("freshness-max-age-max-plus", ["Cache-Control: max-age=99999999999"], .cached),
      Case(
        "freshness-max-age-age", [.date(), "Cache-Control: max-age=3600", "Age: 7200"], .asked),
      Case("freshness-max-age-date", [.date(-7200), "Cache-Control: max-age=3600"], .asked),
      Case(
        "freshness-max-age-expires", ["Cache-Control: max-age=3600", .expires(-7200), .date()],
        .cached),
      Case(
        "freshness-max-age-expires-invalid",
        ["Cache-Control: max-age=3600", "Expires: 0", .date()],
        .cached),
      Case(
        "freshness-max-age-0-expires", [.expires(3600), "Cache-Control: max-age=0", .date()],
        .asked),
      Case("freshness-max-age-extension", ["Cache-Control: foobar, max-age=3600"], .cached),
      Case("freshness-max-age-case-insenstive", ["Cache-Control: MaX-aGe=3600"], .cached),
      Case("freshness-max-age-negative", ["Cache-Control: max-age=-3600"], .asked),
      Case("freshness-s-maxage-shared", ["Cache-Control: s-maxage=3600"], .cached),
      Case(
        "freshness-max-age-s-maxage-shared-longer", ["Cache-Control: max-age=3600, s-maxage=1"],
        after: 3, .asked),
      Case(
        "freshness-max-age-s-maxage-shared-longer-reversed",
        ["Cache-Control: s-maxage=1, max-age=3600"], after: 3, .asked),
      Case(
        "freshness-max-age-s-maxage-shared-longer-multiple",
        ["Cache-Control: max-age=3600", "Cache-Control: s-maxage=1"], after: 3, .asked),
      Case(
        "freshness-max-age-s-maxage-shared-shorter", ["Cache-Control: max-age=1, s-maxage=3600"],
        after: 3, .cached),
      Case(
        "freshness-max-age-s-maxage-shared-shorter-expires",
        [.expires(-10), "Cache-Control: max-age=0, s-maxage=3600"], .cached),
    ],
    inapplicable: [
      Omission(
        "for private caches", "freshness-max-age-s-maxage-private",
        "freshness-max-age-s-maxage-private-multiple")
    ])

  static let ccParse = Group(
    id: "cc-parse", count: 15,
    cases: [
      Case(
        "freshness-max-age-two-fresh-stale-sameline", ["Cache-Control: max-age=1800, max-age=1"],
        after: 3, .cached),
      Case(
        "freshness-max-age-two-fresh-stale-sepline",
        ["Cache-Control: max-age=1800", "Cache-Control: max-age=1"], after: 3, .cached),
      Case("freshness-max-age-quoted", ["Cache-Control: max-age=\"3600\""], .cached),
      Case(
        "freshness-max-age-ignore-quoted", ["Cache-Control: extension=\"max-age=3600\", max-age=1"],
        after: 3, .asked),
      Case(
        "freshness-max-age-ignore-quoted-rev",
        ["Cache-Control: max-age=1, extension=\"max-age=3600\""], after: 3, .asked),
      Case("freshness-max-age-space-before-equals", ["Cache-Control: max-age =3600"], .asked),
      Case("freshness-max-age-space-after-equals", ["Cache-Control: max-age= 3600"], .asked),
      Case("freshness-max-age-leading-zero", ["Cache-Control: max-age=003600"], .cached),
      Case("freshness-max-age-single-quoted", ["Cache-Control: max-age='3600'"], .asked),
    ],
    unheld: [
      Omission(
        "the first of several values is used (RFC 9111 section 4.2.1)",
        "freshness-max-age-two-stale-fresh-sameline", "freshness-max-age-two-stale-fresh-sepline"),
      Omission(
        "an invalid number means stale, as RFC 9111 section 4.2.1 recommends",
        "freshness-max-age-decimal-zero", "freshness-max-age-decimal-five",
        "freshness-max-age-a100", "freshness-max-age-100a"),
    ])

  static let ageParse = Group(
    id: "age-parse", count: 15,
    cases: [
      aged("age-parse-nonnumeric", ["Age: abc"], .cached),
      aged("age-parse-negative", ["Age: -7200"], .cached),
      aged("age-parse-float", ["Age: 7200.0"], .cached),
      aged("age-parse-large-minus-one", ["Age: 2147483647"], .asked),
      aged("age-parse-large", ["Age: 2147483648"], .asked),
      aged("age-parse-larger", ["Age: 2147483649"], .asked),
      aged("age-parse-suffix", ["Age: 7200, 0"], .asked),
      aged("age-parse-prefix", ["Age: 0, 7200"], .cached),
      aged("age-parse-suffix-twoline", ["Age: 7200", "Age: 0"], .asked),
      aged("age-parse-prefix-twoline", ["Age: 0", "Age: 7200"], .cached),
      aged("age-parse-dup-0", ["Age: 0, 0"], .cached),
      aged("age-parse-dup-0-twoline", ["Age: 0", "Age: 0"], .cached),
      Case(
        "age-parse-dup-old",
        [.date(), "Cache-Control: max-age=10000", "Age: 3600", "Age: 3600"], .cached),
    ],
    unheld: [
      Omission(
        "an invalid Age is ignored (RFC 9111 section 5.1)", "age-parse-parameter",
        "age-parse-numeric-parameter")
    ])

  private static func aged(_ id: String, _ ages: [OriginField], _ expected: Expected) -> Case {
    Case(id, [.date(), "Cache-Control: max-age=3600"] + ages, expected)
  }
}
