/// A request field that selects a stored response, because `Vary` names it (RFC 9111 section 4.1).
package struct SelectingField: Sendable, Hashable, Codable {
  /// In lower case.
  package var name: String
  /// The normalized value of all lines; nil if the request lacks the field.
  package var value: String?

  package init(name: String, value: String?) {
    self.name = name
    self.value = value
  }

  /// Reads the field from a request.
  /// - Parameter name: in lower case.
  package init(name: String, of request: [Field]) {
    self.init(name: name, value: Vary.normalized(request, name))
  }
}

/// The `Vary` field of a response (RFC 9110 section 12.5.5).
struct Vary {
  /// Whether a member is `*`: the response depends on more than the request's fields.
  let isAny: Bool
  /// The named fields, in lower case, sorted, without duplicates.
  let names: [String]

  init(_ fields: [Field]) {
    let members = Set(fields.members("vary").map { $0.lowercased() })
    isAny = members.contains("*")
    names = members.subtracting(["*"]).sorted()
  }

  func selecting(of request: [Field]) -> [SelectingField] {
    names.map { SelectingField(name: $0, value: Self.normalized(request, $0)) }
  }

  /// Fields whose members are ranked by `q` alone. Their case and order are ignored.
  private static let rankings: Set = ["accept-charset", "accept-encoding", "accept-language"]

  /// The values of all lines, joined by a comma and a space; nil if the request lacks the field.
  static func normalized(_ request: [Field], _ name: String) -> String? {
    let lines = request.values(name)
    guard !lines.isEmpty else { return nil }
    let members = lines.flatMap(FieldList.members)
    guard rankings.contains(name) else { return members.joined(separator: ", ") }
    return members.map { $0.lowercased().filter { $0 != " " && $0 != "\t" } }.sorted()
      .joined(separator: ", ")
  }
}

extension StoredResponse {
  /// Whether the response matches the request: the fields that `Vary` names are equal. A response with `Vary: *` never
  /// matches.
  package func matches(_ request: [Field]) -> Bool {
    let vary = Vary(fields)
    // A 304 response may have added names to `Vary` whose values were not stored.
    guard !vary.isAny, Set(vary.names).isSubset(of: selecting.map(\.name)) else { return false }
    return selecting.allSatisfy { $0.value == Vary.normalized(request, $0.name) }
  }

  /// Identifies a stored response among those for the same URL. A response replaces a stored one with an equal selector.
  package var selector: String {
    if Vary(fields).isAny { return "*" }
    return selecting.map { field in field.value.map { "\(field.name): \($0)" } ?? field.name }
      .joined(separator: "\n")
  }
}

/// Selects the stored response for a request (RFC 9111 section 4.1).
package enum Selection {
  /// The index of the newest matching response, by `Date` and then by the time when it was received; nil if none matches.
  package static func newest(
    of stored: [StoredResponse], where fits: (StoredResponse) -> Bool = { _ in true }
  ) -> Int? {
    stored.indices.filter { fits(stored[$0]) }.max { a, b in
      (stored[a].generated, stored[a].responseTime) < (stored[b].generated, stored[b].responseTime)
    }
  }
}
