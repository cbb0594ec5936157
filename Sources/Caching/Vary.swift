/// A request field that takes part in choosing a stored response (RFC 9111 section 4.1).
public struct SelectingField: Sendable, Hashable, Codable {
  /// In lower case.
  public var name: String
  /// Its normalized value over all its lines; nil when the request hasn't it.
  public var value: String?

  public init(name: String, value: String?) {
    self.name = name
    self.value = value
  }

  /// The field of that name, in lower case, as a request has it.
  public init(name: String, of request: [Field]) {
    self.init(name: name, value: Vary.normalized(request, name))
  }
}

/// The `Vary` field of a response (RFC 9110 section 12.5.5).
struct Vary {
  /// Whether it has a member `*`: something beside the request's fields took part.
  let isAny: Bool
  /// The fields that it names, in lower case and sorted, each once.
  let names: [String]

  init(_ fields: [Field]) {
    let members = Set(fields.members("vary").map { $0.lowercased() })
    isAny = members.contains("*")
    names = members.subtracting(["*"]).sorted()
  }

  func selecting(of request: [Field]) -> [SelectingField] {
    names.map { SelectingField(name: $0, value: Self.normalized(request, $0)) }
  }

  /// Fields that rank languages, codings or character sets: their members have no case and no order
  /// beside `q`.
  private static let rankings: Set = ["accept-charset", "accept-encoding", "accept-language"]

  /// One line for all, one blank behind each comma.
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
  /// Whether it may answer that request: its fields that `Vary` names have to be the same. With a
  /// `*` none is.
  public func matches(_ request: [Field]) -> Bool {
    let vary = Vary(fields)
    // A 304 may have named more fields than the stored request is known by.
    guard !vary.isAny, Set(vary.names).isSubset(of: selecting.map(\.name)) else { return false }
    return selecting.allSatisfy { $0.value == Vary.normalized(request, $0.name) }
  }

  /// Tells apart what is stored for one URL: equal where one response replaces the other.
  public var selector: String {
    if Vary(fields).isAny { return "*" }
    return selecting.map { field in field.value.map { "\(field.name): \($0)" } ?? field.name }
      .joined(separator: "\n")
  }
}
