extension Group {
  private static let month: Int64 = 30 * 86_400

  static let expires = Group(
    id: "expires", count: 8,
    cases: [
      Case("freshness-expires-future", [.expires(month), .date()], .cached),
      Case("freshness-expires-past", [.expires(-month), .date()], .asked),
      Case("freshness-expires-present", [.expires(0), .date()], .asked),
      Case("freshness-expires-old-date", [.expires(300), .date(400)], .asked),
      Case("freshness-expires-invalid", ["Expires: 0", .date()], .asked),
      Case("freshness-expires-invalid-date", ["Date: foo", .expires(10)], .cached),
      Case("freshness-expires-age-slow-date", [.date(-10), .expires(10), "Age: 25"], .asked),
      Case("freshness-expires-age-fast-date", [.date(10), .expires(20), "Age: 15"], .asked),
    ])

  static let expiresParse = Group(
    id: "expires-parse", count: 16,
    cases: [
      until("freshness-expires-32bit", "Tue, 19 Jan 2038 14:14:08 GMT", .cached),
      until("freshness-expires-far-future", "Sun, 21 Nov 2286 04:46:39 GMT", .cached),
      until("freshness-expires-rfc850", "Thursday, 18-Aug-50 02:01:18 GMT", .cached),
      until("freshness-expires-ansi-c", "Thu Aug  8 02:01:18 2050", .cached),
      until("freshness-expires-wrong-case-weekday", "THU, 18 Aug 2050 02:01:18 GMT", .cached),
      until("freshness-expires-wrong-case-month", "Thu, 18 AUG 2050 02:01:18 GMT", .cached),
      until("freshness-expires-wrong-case-tz", "Thu, 18 Aug 2050 02:01:18 gMT", .cached),
      until("freshness-expires-invalid-utc", "Thu, 18 Aug 2050 02:01:18 UTC", .asked),
      until("freshness-expires-invalid-aest", "Thu, 18 Aug 2050 02:01:18 AEST", .asked),
      until("freshness-expires-invalid-2-digit-year", "Thu, 18 Aug 50 02:01:18 GMT", .asked),
      until("freshness-expires-invalid-no-comma", "Thu 18 Aug 2050 02:01:18 GMT", .asked),
      until("freshness-expires-invalid-multiple-spaces", "Thu, 18  Aug  2050 02:01:18 GMT", .asked),
      until("freshness-expires-invalid-date-dashes", "Thu, 18-Aug-2050 02:01:18 GMT", .asked),
      until("freshness-expires-invalid-time-periods", "Thu, 18 Aug 2050 02.01.18 GMT", .asked),
      until("freshness-expires-invalid-1-digit-hour", "Thu, 18 Aug 2050 2:01:18 GMT", .asked),
      Case(
        "freshness-expires-invalid-multiple-lines",
        [
          "Expires: Thu, 18 Aug 2050 2:01:18 GMT", "Expires: Thu, 18 Aug 2050 2:01:19 GMT", .date(),
        ], .asked),
    ])

  private static func until(_ id: String, _ expires: String, _ expected: Expected) -> Case {
    Case(id, [OriginField("Expires: \(expires)"), .date()], expected)
  }
}
