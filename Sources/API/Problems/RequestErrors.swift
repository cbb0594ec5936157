internal import HTTPTypes
internal import Jobs

/// All mistakes found in one request.
struct RequestErrors {
  /// The maximum number in one response, so that the response to a hostile body stays small.
  static let mostReported = 100
  /// The maximum number that is collected.
  private let most: Int
  private(set) var errors: [FieldError] = []

  init(most: Int = mostReported) { self.most = most }

  var isEmpty: Bool { errors.isEmpty }

  /// Whether the maximum is reached. Decoders then stop, so that a hostile body costs little.
  var isFull: Bool { errors.count >= most }

  mutating func add(_ place: FieldError.Place, _ code: RequestCode, _ detail: String) {
    guard !isFull else { return }
    errors.append(FieldError(place: place, code: code, detail: detail))
  }

  mutating func add(_ location: Location, _ code: RequestCode, _ detail: String) {
    guard !isFull else { return }
    add(location.place, code, location.detail(detail))
  }

  /// Appends the mistakes of `others`.
  mutating func add(_ others: RequestErrors) {
    for error in others.errors { add(error.place, error.code, error.detail) }
  }

  /// Returns ` Did you mean url?`, to follow a sentence about an unknown name. Empty if no name is similar or the
  /// sentence is not reported.
  func hint(for name: String, among names: [String]) -> String {
    guard !isFull, let meant = Suggestion.name(for: name, among: names) else { return "" }
    return " Did you mean \(meant)?"
  }

  /// One problem with all mistakes; its code is that of the first one. Nil if there are none.
  var problem: Problem? {
    guard let first = errors.first else { return nil }
    let more = errors.count - 1
    let others = more == 0 ? "" : " (and \(isFull ? "at least " : "")\(more) more)"
    var problem = Problem(first.code, first.detail + others, status: .unprocessableContent)
    problem.errors = errors
    return problem
  }

  /// Throws ``problem`` if there are mistakes.
  func check() throws(Problem) {
    if let problem { throw problem }
  }
}

/// The place of a value in a request. The text is made only when the value is wrong.
struct Location {
  /// The part of the request that contains the value.
  enum Root {
    /// The JSON body, or the element of its array with that index.
    case body(index: Int?)
    case query
    /// A query parameter whose value is JSON.
    case parameter(String)
  }
  var root: Root
  var member: String?
  /// The path from the member to a value within it.
  private var children: [String] = []

  init(root: Root, member: String? = nil) { (self.root, self.member) = (root, member) }

  /// The place of a value within this one.
  func child(_ name: String) -> Location {
    var copy = self
    copy.children.append(name)
    return copy
  }

  /// A JSON Pointer (RFC 6901) or the name of a query parameter.
  var place: FieldError.Place {
    switch root {
    case .query: return .parameter(Self.cut(member ?? ""))
    case .parameter(let name): return .parameter(name)
    case .body(let index):
      return .pointer(Self.pointer([index.map(String.init), member].compactMap { $0 } + children))
    }
  }

  /// The detail of a mistake. If the value is within a query parameter, the detail begins with its JSON Pointer.
  func detail(_ detail: String) -> String {
    let within: [String]
    switch root {
    case .body: return detail
    case .query: within = children
    case .parameter: within = [member].compactMap { $0 } + children
    }
    return within.isEmpty ? detail : "\(Self.pointer(within)): \(detail)"
  }

  private static func pointer(_ tokens: [String]) -> String {
    tokens.map { "/" + escaped(cut($0)) }.joined()
  }

  private static func escaped(_ token: String) -> String {
    guard token.utf8.contains(where: { $0 == UInt8(ascii: "~") || $0 == UInt8(ascii: "/") }) else {
      return token
    }
    return token.reduce(into: "") { text, character in
      switch character {
      case "~": text += "~0"
      case "/": text += "~1"
      default: text.append(character)
      }
    }
  }

  /// Clients can send names as long as the whole body, so they are cut to 128 bytes.
  private static func cut(_ name: String) -> String {
    name.utf8.count <= 128 ? name : name.prefix(bytes: 128)
  }
}
