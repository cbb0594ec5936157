// Caching: the rules of HTTP caching (RFC 9111) as pure functions.
//
// Input: header fields, statuses and times. Output: decisions. It has no clock and does no I/O, and works on any thread.
// The files, in reading order:
//
// 1. `Storing`: may a response be stored? Also its stored form, and the redirects before it.
// 2. `Vary`: which stored response matches a request?
// 3. `Freshness`: may a stored response be used now? If not, how to ask the origin whether it is still current.
// 4. `CacheControl`, `HTTPDate`: parsing.

/// A header field of a request or a response.
package struct Field: Sendable, Hashable, Codable {
  /// The name as received. Comparisons ignore case.
  package var name: String
  package var value: String

  package init(name: String, value: String) {
    self.name = name
    self.value = value
  }

  /// - Parameter name: in lower case.
  func isNamed(_ name: String) -> Bool {
    self.name.utf8.count == name.utf8.count && self.name.lowercased() == name
  }
}

extension [Field] {
  /// The values of all lines with this name, in order.
  /// - Parameter name: in lower case.
  func values(_ name: String) -> [String] {
    filter { $0.isNamed(name) }.map(\.value)
  }

  /// The value of the first line with this name; nil if there is none.
  /// - Parameter name: in lower case.
  func first(_ name: String) -> String? {
    first { $0.isNamed(name) }?.value
  }

  /// The members of a list field, from all its lines.
  /// - Parameter name: in lower case.
  func members(_ name: String) -> [Substring] {
    values(name).flatMap(FieldList.members)
  }
}
