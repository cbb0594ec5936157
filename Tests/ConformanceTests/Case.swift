import Caching

/// A case of the HTTP caching tests at github.com/http-tests/cache-tests, with the ID that it has there. Each
/// request of a case is sent as a job.
struct Case: Sendable {
  let id: String
  let steps: [Step]

  init(_ id: String, _ steps: Step...) {
    self.id = id
    self.steps = steps
  }

  /// The form of most cases: a first job that fetches the image, then a second job.
  init(_ id: String, _ fields: [OriginField], after seconds: Int = 0, _ expected: Expected) {
    self.init(id, .first(fields), .next(expected, after: seconds))
  }
}

/// One job, and the origin's response while it runs.
struct Step: Sendable {
  /// The job's header fields.
  var headers: [String: String] = [:]
  /// The job's cache mode.
  var mode = "default"
  /// The query of the job's URL.
  var query = ""
  /// The pause before the job, in seconds.
  var pause = 0
  /// The status and the header fields of the origin's response.
  var status = 200
  var fields: [OriginField] = []
  /// The status of an interim response before the final one.
  var interim: Int?
  /// Whether the origin closes the connection without a response.
  var disconnects = false

  var expected = Expected.asked
  /// The job's `cache.age` must be greater than this, in seconds.
  var ageAbove: Int?

  /// A first job, which the origin answers with these fields.
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

  /// Returns the step with one member changed.
  func with<Value>(_ path: WritableKeyPath<Step, Value>, _ value: Value) -> Step {
    var step = self
    step[keyPath: path] = value
    return step
  }
}

/// The expected result of a job.
enum Expected: Sendable, Equatable {
  /// The origin receives a request, and its image is the result.
  case asked
  /// The stored image of that step is the result, and the origin receives no request.
  case cached(from: Int)
  /// The origin confirms the first step's image, which is the result.
  case validated(by: String)
  /// The first step's image is the result although it is stale. The origin receives a request if `asks` is
  /// true, possibly after the result.
  case stale(asks: Bool)
  /// The job fails. The origin receives a request unless the cache mode forbids it.
  case failed

  static let cached = cached(from: 1)
  static let tagged = validated(by: "If-None-Match")
  static let dated = validated(by: "If-Modified-Since")
}

/// A header field of the origin's response: a fixed one, written `"Age: 3"`, or a date.
struct OriginField: Sendable, ExpressibleByStringLiteral {
  let name: String
  private let value: String
  /// Seconds from the time of the response.
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

  /// Returns the value for a response at that time, in milliseconds since 1970.
  func value(at now: Int64) -> String {
    offset.map { HTTPDate(milliseconds: now + $0 * 1000).description } ?? value
  }
}
