import Caching

/// A case of the HTTP caching suite at github.com/http-tests/cache-tests, by its id there, as a
/// client of the service meets it: each request of a case is a job.
struct Case: Sendable {
  let id: String
  let steps: [Step]

  init(_ id: String, _ steps: Step...) {
    self.id = id
    self.steps = steps
  }

  /// Most cases: a first job that fetches, then a second one.
  /// - Parameter seconds: the pause between both.
  init(_ id: String, _ fields: [OriginField], after seconds: Int = 0, _ expected: Expected) {
    self.init(id, .first(fields), .next(expected, after: seconds))
  }
}

/// One job, and what the origin answers while it runs.
struct Step: Sendable {
  /// The job's header fields.
  var headers: [String: String] = [:]
  /// The job's cache mode.
  var mode = "default"
  /// The query of the job's URL.
  var query = ""
  /// Seconds to wait before it.
  var pause = 0
  /// What the origin answers.
  var status = 200
  var fields: [OriginField] = []
  /// The status of an interim response before it.
  var interim: Int?
  /// Whether the origin closes the connection in place of an answer.
  var disconnects = false

  var expected = Expected.asked
  /// What the job's `cache.age` must be more than.
  var ageAbove: Int?

  /// A first job: the origin's fields answer it.
  static func first(_ fields: [OriginField], _ headers: [String: String] = [:]) -> Step {
    Step(headers: headers, fields: fields)
  }

  /// A later job.
  static func next(
    _ expected: Expected, after pause: Int = 0, _ headers: [String: String] = [:],
    mode: String = "default", answer fields: [OriginField] = []
  ) -> Step {
    Step(headers: headers, mode: mode, pause: pause, fields: fields, expected: expected)
  }

  /// The same with something changed.
  func with<Value>(_ path: WritableKeyPath<Step, Value>, _ value: Value) -> Step {
    var step = self
    step[keyPath: path] = value
    return step
  }
}

/// What a job has to come to.
enum Expected: Sendable, Equatable {
  /// The origin is asked, and its image is the result.
  case asked
  /// The stored image of that step is the result, and the origin is not asked.
  case cached(from: Int)
  /// The origin is asked whether the first step's image still holds, and that is the result.
  case validated(by: String)
  /// The first step's image is the result, stale as it is; the origin is asked, at least
  /// afterwards, or not at all.
  case stale(asks: Bool)
  /// There is no image. Unless the mode forbids, the origin is asked.
  case failed

  static let cached = cached(from: 1)
  static let tagged = validated(by: "If-None-Match")
  static let dated = validated(by: "If-Modified-Since")
}

/// A header field of the origin, written `"Age: 3"`, or a date.
struct OriginField: Sendable, ExpressibleByStringLiteral {
  let name: String
  private let value: String
  /// Seconds from the moment of the answer.
  private let offset: Int64?

  init(_ line: String) {
    let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
    name = String(parts[0])
    value = parts.count == 2 ? String(parts[1].drop { $0 == " " }) : ""
    offset = nil
  }

  init(stringLiteral line: String) { self.init(line) }

  private init(_ name: String, in offset: Int64) {
    self.name = name
    value = ""
    self.offset = offset
  }

  static func date(_ seconds: Int64 = 0) -> Self { Self("Date", in: seconds) }
  static func expires(_ seconds: Int64) -> Self { Self("Expires", in: seconds) }
  static func modified(_ seconds: Int64) -> Self { Self("Last-Modified", in: seconds) }

  /// Its value in an answer at that moment.
  func value(at now: Int64) -> String {
    offset.map { HTTPDate(milliseconds: now + $0 * 1000).description } ?? value
  }
}
