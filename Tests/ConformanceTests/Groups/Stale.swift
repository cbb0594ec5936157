extension Group {
  static let stale = Group(
    id: "stale", count: 12,
    cases: [
      Case(
        "stale-while-revalidate",
        ["Cache-Control: max-age=1, stale-while-revalidate=3600", "ETag: \"abc\""], after: 3,
        .stale(asks: true)),
      Case(
        "stale-while-revalidate-window",
        .first(["Cache-Control: max-age=1, stale-while-revalidate=4", "ETag: \"abc\""]),
        .next(.stale(asks: true), after: 3, answer: ["Cache-Control: no-cache", "ETag: \"def\""]),
        .next(.asked, after: 3)),
      broken("stale-sie-close", "stale-if-error=60", .stale(asks: true)),
      Case(
        "stale-sie-503", .first(["Cache-Control: max-age=2, stale-if-error=60"]),
        .next(.stale(asks: true), after: 3).with(\.status, 503)),
      broken("stale-close-must-revalidate", "must-revalidate", .failed),
      broken("stale-close-proxy-revalidate", "proxy-revalidate", .failed),
      broken("stale-close-no-cache", "no-cache", .failed),
      broken("stale-close-s-maxage=2", "s-maxage=2", .failed),
    ],
    unheld: [
      Omission(
        "without stale-if-error the job fails", "stale-close", "stale-503")
    ],
    inapplicable: [
      Omission(
        "Warning is obsolete (RFC 9111 section 5.5); the job's cache.status is stale",
        "stale-warning-stored", "stale-warning-become")
    ])

  private static func broken(_ id: String, _ directive: String, _ expected: Expected) -> Case {
    Case(
      id, .first([OriginField("Cache-Control: max-age=2, \(directive)")]),
      .next(expected, after: 3).with(\.disconnects, true))
  }
}
