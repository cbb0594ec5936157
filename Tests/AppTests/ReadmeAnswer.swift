import Foundation

/// Compares an answer with the one in the documentation. There, `…` in a text stands for any characters, and
/// as an object's last member for any others. Times, durations and versions change, so only their form is
/// compared. Everything else must be equal.
extension Readme.Answer {
  /// Returns the differences, one per line.
  func differences(from output: String) -> [String] {
    let output = output.replacing("\r\n", with: "\n")
    switch kind {
    case "json": return Self.compareJSON(text, output)
    case "http": return Self.compareMessages(text, output)
    default: return Self.compareText(text, output, at: "text")
    }
  }

  private static func compareText(_ shown: String, _ real: String, at place: String) -> [String] {
    let (shown, real) = (shown.trimmed, real.trimmed)
    return matches(shown, real) ? [] : ["\(place): shown \(shown) but it is \(real)"]
  }

  private static func compareMessages(_ shown: String, _ real: String) -> [String] {
    let (shown, real) = (Message(shown), Message(real))
    var differences = compareText(shown.status, real.status, at: "status")
    let everywhere: Set = ["date", "x-request-id", "content-length"]
    let names = Set(shown.fields.keys).union(real.fields.keys).subtracting(everywhere)
    for name in names.sorted() {
      let (left, right) = (shown.fields[name] ?? "none", real.fields[name] ?? "none")
      differences += compareText(left, right, at: name)
    }
    guard shown.body.hasPrefix("{") else {
      return differences + compareText(shown.body, real.body, at: "body")
    }
    return differences + compareJSON(shown.body, real.body)
  }

  private static func compareJSON(_ shown: String, _ real: String) -> [String] {
    guard let left = parse(memberForEllipsis(shown)) else { return ["not JSON: \(shown)"] }
    guard let right = parse(real) else { return ["not JSON: \(real)"] }
    return compare(left, right, at: "")
  }

  private static func parse(_ text: String) -> Any? {
    try? JSONSerialization.jsonObject(with: Data(text.utf8), options: .fragmentsAllowed)
  }

  /// Replaces an ellipsis outside of strings by a member, so that the text is valid JSON.
  private static func memberForEllipsis(_ text: String) -> String {
    var inString = false
    var previous: Character = " "
    var result = ""
    for character in text {
      if character == "\"", previous != "\\" { inString.toggle() }
      result += character == "…" && !inString ? "\"…\": null" : String(character)
      previous = character
    }
    return result
  }

  private static func compare(_ shown: Any, _ real: Any, at place: String) -> [String] {
    switch (shown, real) {
    case (let shown as [String: Any], let real as [String: Any]):
      let isPart = shown.keys.contains("…")
      let names = Set(shown.keys).union(isPart ? [] : Array(real.keys)).subtracting(["…"])
      return names.sorted().flatMap { name -> [String] in
        guard let left = shown[name] else { return ["\(place)/\(name): not shown"] }
        guard let right = real[name] else { return ["\(place)/\(name): not there"] }
        return compare(left, right, at: "\(place)/\(name)")
      }
    case (let shown as [Any], let real as [Any]):
      guard shown.count == real.count else { return ["\(place): \(real.count) elements"] }
      return zip(shown, real).enumerated().flatMap { compare($1.0, $1.1, at: "\(place)/\($0)") }
    case (let shown as String, let real as String):
      return compareText(shown, real, at: place)
    case (let shown as NSNumber, let real as NSNumber):
      if shown == real || place.hasSuffix("_ms") || place.hasSuffix("/version") { return [] }
      return ["\(place): shown \(shown) but it is \(real)"]
    case (is NSNull, is NSNull): return []
    default: return ["\(place): shown \(shown) but it is \(real)"]
    }
  }

  /// Whether a text matches the documented one.
  private static func matches(_ shown: String, _ real: String) -> Bool {
    // The rest of a shortened id or digest is an example.
    let shown = withoutTimes(shown).replacing(#/[0-9a-z]{4}…/#, with: "…")
    let parts = shown.split(separator: "…", omittingEmptySubsequences: false)
    var rest = Substring(withoutTimes(real))
    guard let first = parts.first, rest.hasPrefix(first) else { return false }
    rest.removeFirst(first.count)
    guard parts.count > 1, let last = parts.last else { return rest.isEmpty }
    for part in parts.dropFirst().dropLast() {
      guard let range = rest.range(of: part) else { return false }
      rest = rest[range.upperBound...]
    }
    return rest.hasSuffix(last)
  }

  private static func withoutTimes(_ text: String) -> String {
    text.replacing(#/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/#, with: "(time)")
      .replacing(#/[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT/#, with: "(date)")
      .replacing(#/^"\d+"$/#, with: "(version)")
  }
}

/// An HTTP response as `curl -i` prints it.
private struct Message {
  var status = ""
  var fields: [String: String] = [:]
  var body = ""

  init(_ text: String) {
    let halves = text.split(separator: "\n\n", maxSplits: 1)
    if halves.count == 2 { body = String(halves[1]).trimmed }
    let lines = halves.first?.split(separator: "\n") ?? []
    status = lines.first.map(String.init) ?? ""
    for line in lines.dropFirst() {
      let parts = line.split(separator: ":", maxSplits: 1)
      guard parts.count == 2 else { continue }
      fields[parts[0].lowercased()] = String(parts[1]).trimmed
    }
  }
}

extension String {
  fileprivate var trimmed: String { trimmingCharacters(in: .whitespacesAndNewlines) }
}
