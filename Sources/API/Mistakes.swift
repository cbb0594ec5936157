internal import HTTPTypes
internal import Jobs

/// What is wrong with one request, all of it at once.
struct Mistakes {
  /// The most that one answer reports, so that the answer to a hostile body stays small.
  static let mostTold = 100
  /// The most that are collected.
  private let most: Int
  private(set) var errors: [FieldError] = []

  init(most: Int = mostTold) { self.most = most }

  var isEmpty: Bool { errors.isEmpty }

  /// Whether no more mistakes are collected. Decoders then stop, so that a hostile body costs little.
  var isFull: Bool { errors.count >= most }

  mutating func add(_ place: FieldError.Place, _ code: RequestCode, _ detail: String) {
    guard !isFull else { return }
    errors.append(FieldError(place: place, code: code, detail: detail))
  }

  mutating func add(_ location: Location, _ code: RequestCode, _ detail: String) {
    guard !isFull else { return }
    add(location.place, code, location.told(detail))
  }

  /// Adds another's behind these.
  mutating func add(_ others: Mistakes) {
    for error in others.errors { add(error.place, error.code, error.detail) }
  }

  /// ` Did you mean url?`, to follow a sentence about an unknown name; empty when no name is near, or when the sentence is
  /// not reported.
  func hint(for name: String, among names: [String]) -> String {
    guard !isFull, let meant = Suggestion.name(for: name, among: names) else { return "" }
    return " Did you mean \(meant)?"
  }

  /// A problem that names them all, its own code the first one's; nil where nothing is wrong.
  var problem: Problem? {
    guard let first = errors.first else { return nil }
    let more = errors.count - 1
    let others = more == 0 ? "" : " (and \(isFull ? "at least " : "")\(more) more)"
    var problem = Problem(first.code, first.detail + others, status: .unprocessableContent)
    problem.errors = errors
    return problem
  }

  /// Throws that problem.
  func check() throws(Problem) {
    if let problem { throw problem }
  }
}

/// Where in a request a value stands; put into words only when it is wrong.
struct Location {
  /// What the value stands in.
  enum Root {
    /// The JSON body, or the batch's element of that index.
    case body(index: Int?)
    case query
    /// The JSON that a member of the query is.
    case parameter(String)
  }
  var root: Root
  var member: String?
  /// From the member on to the value within it.
  private var children: [String] = []

  init(root: Root, member: String? = nil) { (self.root, self.member) = (root, member) }

  /// A value within it.
  func child(_ name: String) -> Location {
    var copy = self
    copy.children.append(name)
    return copy
  }

  /// A JSON Pointer (RFC 6901) or a query member's name.
  var place: FieldError.Place {
    switch root {
    case .query: return .parameter(Self.cut(member ?? ""))
    case .parameter(let name): return .parameter(name)
    case .body(let index):
      return .pointer(Self.pointer([index.map(String.init), member].compactMap { $0 } + children))
    }
  }

  /// What is said of the value: of one within a query's member, where it stands there, too.
  func told(_ detail: String) -> String {
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

  /// A name of the client's own making may be as long as its body.
  private static func cut(_ name: String) -> String {
    name.utf8.count <= 128 ? name : name.prefix(bytes: 128)
  }
}
