import Caching

/// 2026-11-21T00:00:00Z.
let noon: Int64 = 1_795_219_200_000

/// Fields from lines such as `["Age: 3"]`.
func fields(_ lines: [String]) -> [Field] {
  lines.map { line in
    let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
    return Field(
      name: String(parts[0]),
      value: parts[1].hasPrefix(" ") ? String(parts[1].dropFirst()) : String(parts[1]))
  }
}

/// A date field, this many seconds after the response was received.
func date(_ name: String, _ seconds: Int64) -> String {
  "\(name): \(HTTPDate(milliseconds: noon + seconds * 1000))"
}

/// A response that was requested and received at `noon`.
func response(
  _ lines: [String], to request: [String] = [], assigned: Int? = nil
) -> StoredResponse {
  StoredResponse(
    to: fields(request), fields: fields(lines), requestTime: noon, responseTime: noon,
    assignedLifetime: assigned)
}

/// The freshness of a response this many seconds after it was received.
func freshness(
  _ lines: [String], after seconds: Int64 = 0, assigned: Int? = nil, fallback: Int? = nil
) -> Freshness {
  Freshness(
    of: response(lines), at: noon + seconds * 1000, assigned: assigned, fallback: fallback)
}
