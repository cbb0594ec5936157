extension Group {
  static let auth = Group(
    id: "auth", count: 4,
    cases: [
      authorized("other-authorization", "max-age=100000", .asked),
      authorized("other-authorization-public", "max-age=3600, public", .cached),
      authorized("other-authorization-must-revalidate", "max-age=3600, must-revalidate", .cached),
      authorized("other-authorization-smaxage", "s-maxage=3600", .cached),
    ])

  private static func authorized(_ id: String, _ directives: String, _ expected: Expected) -> Case {
    Case(
      id,
      .first([OriginField("Cache-Control: \(directives)"), .date()], ["Authorization": "FOO"]),
      .next(expected))
  }

  private static let lasting: [OriginField] = ["Cache-Control: max-age=100000", .date()]

  static let other = Group(
    id: "other", count: 13,
    cases: [
      Case("other-age-gen", .first(lasting), .next(.cached, after: 3).with(\.ageAbove, 2)),
      Case(
        "other-age-update-expires", .first([.expires(2_592_000), .date(), "Age: 30"]),
        .next(.cached, after: 3).with(\.ageAbove, 32)),
      Case(
        "other-age-update-max-age", .first(lasting + ["Age: 30"]),
        .next(.cached, after: 3).with(\.ageAbove, 32)),
      Case(
        "query-args-different", .first(lasting).with(\.query, "?test=1"),
        .next(.asked).with(\.query, "?test=2")),
      Case(
        "query-args-same", .first(lasting).with(\.query, "?test=1"),
        .next(.cached).with(\.query, "?test=1")),
      Case(
        "other-heuristic-content-disposition-attachment",
        [.modified(-100_000), .date(), "Content-Disposition: attachment; filename=example.txt"],
        .cached),
      Case(
        "other-fresh-content-disposition-attachment",
        lasting + ["Content-Disposition: attachment; filename=example.txt"], .cached),
      Case("other-set-cookie", lasting + ["Set-Cookie: a=b"], .cached),
      Case("other-cookie", .first(lasting), .next(.cached, ["Cookie": "a=b"])),
    ],
    inapplicable: [
      Omission("a job shows only the age of stored responses", "other-age-delay"),
      Omission(
        passedOn, "other-date-update", "other-date-update-expires",
        "other-date-update-expires-update"),
    ])

  static let interim = Group(
    id: "interim", count: 4,
    cases: ["interim-102", "interim-103", "interim-not-cached", "interim-no-header-reuse"].map {
      Case(
        $0, .first(lasting).with(\.interim, $0 == "interim-102" ? 102 : 103), .next(.cached))
    })

  static let partial = Group(
    id: "partial", count: 10,
    inapplicable: [
      Omission(
        "a job cannot request a range",
        ids: [
          "store-partial-reuse-partial", "store-complete-reuse-partial",
          "store-complete-reuse-partial-no-last", "store-complete-reuse-partial-suffix",
          "store-partial-reuse-partial-byterange", "store-partial-reuse-partial-absent",
          "store-partial-reuse-partial-suffix", "store-partial-complete", "use-headers",
          "use-stored-headers",
        ].map { "partial-\($0)" })
    ])

  static let headers = Group(
    id: "headers", count: 30,
    inapplicable: [
      Omission(passedOn, "headers-omit-headers-listed-in-Connection"),
      Omission(
        passedOn,
        ids: [
          "Test-Header", "X-Test-Header", "Content-Foo", "X-Content-Foo", "Cache-Control",
          "Connection", "Content-Encoding", "Content-Length", "Content-Location", "Content-MD5",
          "Content-Range", "Content-Security-Policy", "Content-Type", "Clear-Site-Data", "ETag",
          "Expires", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authentication-Info",
          "Proxy-Authorization", "Proxy-Connection", "Public-Key-Pins", "Set-Cookie", "Set-Cookie2",
          "TE", "Transfer-Encoding", "Upgrade", "X-Frame-Options", "X-XSS-Protection",
        ].map { "headers-store-\($0)" }),
    ])
}

/// Cases for methods other than GET, or for caches with extensions of HTTP's rules.
extension Group {
  private static let onlyGet = "a job sends only GET requests"

  static let method = Group(
    id: "method", count: 1, inapplicable: [Omission(onlyGet, "method-POST")])

  static let updateHead = Group(
    id: "updateHEAD", count: 5,
    inapplicable: [
      Omission(
        onlyGet, "head-writethrough", "head-200-retain", "head-200-freshness-update",
        "head-200-update", "head-410-update")
    ])

  static let invalidation = Group(
    id: "invalidation", count: 16,
    inapplicable: [
      Omission(
        onlyGet,
        ids: ["POST", "PUT", "DELETE", "M-SEARCH"].flatMap { method in
          ["", "-failed", "-location", "-cl"].map { "invalidate-\(method)\($0)" }
        })
    ])

  static let cdn = Group(
    id: "cdn-cache-control", count: 24,
    inapplicable: [
      Omission(
        "CDN-Cache-Control (RFC 9213) is ignored",
        ids: [
          "max-age", "max-age-max", "max-age-max-plus", "max-age-age",
          "max-age-space-before-equals",
          "max-age-space-after-equals", "max-age-0", "max-age-extension",
          "max-age-case-insensitive", "max-age-expires", "max-age-cc-max-age-invalid-expires",
          "max-age-0-expires", "max-age-short-cc-max-age", "max-age-long-cc-max-age", "private",
          "no-cache", "no-store-cc-fresh", "fresh-cc-nostore", "cc-invalid-sh-type-unknown",
          "cc-invalid-sh-type-wrong", "remove-header", "remove-age-exceed", "date-update-exceed",
          "expires-update-exceed",
        ].map { "cdn-\($0)" })
    ])
}
