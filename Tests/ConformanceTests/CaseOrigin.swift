import Caching
import TestSupport

/// The origin of one case, with its response in each step.
struct CaseOrigin {
  private let row: Case
  /// The current step, counted from 1.
  private(set) var number = 0
  /// The header fields of the last image that it sent.
  private var sent: [Field] = []

  init(_ row: Case) { self.row = row }

  mutating func begin(_ number: Int) { self.number = number }

  struct Answer {
    var status: Int
    var fields: [Field]
    var body: [UInt8]
  }

  /// Returns the response to a request with these fields; nil if the origin closes the connection.
  mutating func answer(_ request: [Field], at now: Int64) -> Answer? {
    let step = row.steps[number - 1]
    guard !step.disconnects else { return nil }
    var fields = step.fields.map { Field(name: $0.name, value: $0.value(at: now)) }
    if !fields.contains(where: { $0.name == "Date" }) {
      fields.append(Field(name: "Date", value: HTTPDate(milliseconds: now).description))
    }
    if case .validated = step.expected, isCurrent(request) {
      return Answer(status: 304, fields: fields, body: [])
    }
    sent = fields
    let body = step.status == 204 ? [] : Self.image(number)
    return Answer(status: step.status, fields: fields, body: body)
  }

  /// An image whose width in pixels is the number of its step.
  static func image(_ number: Int) -> [UInt8] {
    PNGFixture(width: UInt32(number), height: 1).bytes
  }

  /// Whether a condition of the request matches the image that was sent last.
  private func isCurrent(_ request: [Field]) -> Bool {
    let pairs = [("if-none-match", "ETag"), ("if-modified-since", "Last-Modified")]
    return pairs.contains { condition, validator in
      let asked = request.first { $0.name.lowercased() == condition }
      let own = sent.first { $0.name == validator }
      return asked != nil && asked?.value == own?.value
    }
  }
}
