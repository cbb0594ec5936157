extension Group {
  static let ccResponse = Group(
    id: "cc-response", count: 17,
    cases: [
      Case("cc-resp-private-shared", ["Cache-Control: private, max-age=3600"], .asked),
      Case("cc-resp-no-store", ["Cache-Control: no-store"], .asked),
      Case("cc-resp-no-store-case-insensitive", ["Cache-Control: No-StOrE"], .asked),
      Case(
        "cc-resp-no-store-fresh",
        ["Cache-Control: max-age=10000, no-store", .expires(10000), .date()], .asked),
      laterForbidden("cc-resp-no-store-old-new", "Cache-Control: no-store"),
      laterForbidden("cc-resp-no-store-old-max-age", "Cache-Control: no-store, max-age=0"),
      Case(
        "cc-resp-no-cache", ["Cache-Control: max-age=10000, no-cache", .expires(10000), .date()],
        .asked),
      Case(
        "cc-resp-no-cache-case-insensitive",
        ["Cache-Control: max-age=10000, No-CaChE", .expires(10000), .date()], .asked),
      Case(
        "cc-resp-no-cache-revalidate", ["Cache-Control: no-cache", "ETag: \"abcd\""], .tagged),
      Case(
        "cc-resp-no-cache-revalidate-fresh",
        [
          "Cache-Control: max-age=10000, no-cache", .expires(10000), .date(), "ETag: \"abcd\"",
        ], .tagged),
      Case(
        "headers-omit-headers-listed-in-Cache-Control-no-cache-single",
        ["Cache-Control: no-cache=\"a\"", "a: 1", "Cache-Control: max-age=3600", .date()], .cached),
      Case(
        "headers-omit-headers-listed-in-Cache-Control-no-cache",
        ["Cache-Control: no-cache=\"a, b\"", "b: 2", "Cache-Control: max-age=3600", .date()],
        .cached),
      Case(
        "cc-resp-must-revalidate-fresh",
        ["Cache-Control: max-age=10000, must-revalidate", "ETag: \"abcd\""], .cached),
      Case(
        "cc-resp-must-revalidate-stale",
        .first(["Cache-Control: max-age=4, must-revalidate", "ETag: \"abcd\""]), .next(.cached),
        .next(.tagged, after: 5)),
    ],
    inapplicable: [
      Omission("for private caches", "cc-resp-private-private"),
      Omission(
        "for browsers; the cache mode no-cache also revalidates immutable responses",
        "cc-resp-immutable-fresh", "cc-resp-immutable-stale"),
    ])

  private static func laterForbidden(_ id: String, _ directives: OriginField) -> Case {
    Case(
      id, .first(["Cache-Control: max-age=10000", .expires(10000), .date()]),
      .next(.cached, answer: [directives, .date()]), .next(.cached))
  }

  static let ccRequest = Group(
    id: "cc-request", count: 12,
    cases: [
      requested("ccreq-no-cache", ["Cache-Control: max-age=3600"], .asked, "no-cache"),
      requested(
        "ccreq-no-cache-lm", ["Cache-Control: max-age=3600", .modified(-10000), .date()], .dated,
        "no-cache"),
      requested(
        "ccreq-no-cache-etag", ["Cache-Control: max-age=3600", "ETag: \"abc\""], .tagged,
        "no-cache"),
      requested("ccreq-no-store", ["Cache-Control: max-age=100000", .date()], .asked, "no-store"),
      requested(
        "ccreq-max-stale-age", ["Cache-Control: max-age=1500", "Age: 2000"], .stale(asks: false),
        "force-cache"),
      Case(
        "ccreq-max-stale", .first(["Cache-Control: max-age=2", .date()]),
        .next(.stale(asks: false), after: 3, mode: "force-cache")),
      Case("ccreq-oic", .next(.failed, mode: "only-if-cached")),
    ],
    inapplicable: [
      Omission(
        "no cache mode means this", "ccreq-ma0", "ccreq-ma1", "ccreq-magreaterage",
        "ccreq-min-fresh",
        "ccreq-min-fresh-age")
    ])

  private static func requested(
    _ id: String, _ fields: [OriginField], _ expected: Expected, _ mode: String
  ) -> Case {
    Case(id, .first(fields), .next(expected, mode: mode))
  }

  static let pragma = Group(
    id: "pragma", count: 5,
    cases: [
      Case(
        "pragma-response-no-cache", ["Cache-Control: max-age=3600", "Pragma: no-cache"], .cached),
      Case(
        "pragma-response-no-cache-heuristic", [.date(), .modified(-10000), "Pragma: no-cache"],
        .cached),
      Case(
        "pragma-response-extension",
        ["Cache-Control: max-age=3600", "Pragma: unrecognised-extension"], .cached),
    ],
    inapplicable: [
      Omission(
        "a job has a cache mode instead of these fields", "pragma-request-no-cache",
        "pragma-request-extension")
    ])
}
