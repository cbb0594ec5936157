/// The `Accept` field of a request: the media types that the client accepts, with weights (RFC 9110 section 12.5.1).
struct Accept: Sendable {
  private struct Range {
    let type: Substring
    let subtype: Substring
    let weight: Double
  }
  private let ranges: [Range]

  /// - Parameter field: nil: all types are equally acceptable. Malformed elements are ignored.
  init(_ field: String?) {
    ranges = (field ?? "").split(separator: ",").compactMap { Self.range($0) }
  }

  /// Whether the field is missing or has no valid element.
  var isEmpty: Bool { ranges.isEmpty }

  /// The weight of the type, 0 to 1. The most specific matching range decides. Parameters other than `q` are ignored,
  /// because no image type has any.
  func weight(of mediaType: String) -> Double {
    if isEmpty { return 1 }
    let parts = mediaType.split(separator: "/")
    guard parts.count == 2 else { return 0 }
    return ranges.filter { $0.subtype == parts[1] && $0.type == parts[0] }.map(\.weight).max()
      ?? ranges.filter { $0.subtype == "*" && $0.type == parts[0] }.map(\.weight).max()
      ?? ranges.filter { $0.subtype == "*" && $0.type == "*" }.map(\.weight).max() ?? 0
  }

  /// Whether the field lists the type itself with a weight above 0. A range such as `image/*` does not count.
  func names(_ mediaType: String) -> Bool {
    ranges.contains { $0.weight > 0 && "\($0.type)/\($0.subtype)" == mediaType }
  }

  private static func range(_ element: Substring) -> Range? {
    let text = element.drop { $0 == " " || $0 == "\t" }
    guard let mediaType = MediaType(String(text)) else { return nil }
    let parts = mediaType.essence.split(separator: "/")
    guard parts.count == 2, parts[0] != "*" || parts[1] == "*",
      let weight = mediaType.parameter("q").map(Self.weight) ?? 1
    else { return nil }
    return Range(type: parts[0], subtype: parts[1], weight: weight)
  }

  /// RFC 9110 section 12.4.2: at most three digits after the point.
  private static func weight(_ text: String) -> Double? {
    let isPlain = text.utf8.allSatisfy { UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 || $0 == 0x2E }
    guard isPlain, 1...5 ~= text.utf8.count, let weight = Double(text), weight <= 1 else {
      return nil
    }
    return weight
  }
}
