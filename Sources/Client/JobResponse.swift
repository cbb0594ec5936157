internal import FoundationEssentials

/// A job in a response of the service, with the members that the client needs.
struct JobResponse: Decodable, Equatable {
  enum Phase: String, Decodable {
    case queued, loading, success, failure, cancelled
  }

  struct Progress: Decodable, Equatable {
    var completed: Int
    var total: Int?
  }

  struct Image: Decodable, Equatable {
    var format: String
    var width: Int
    var height: Int
    var bytes: Int
    /// The number of frames; 1 for a still image.
    var frames: Int?
  }

  struct Failure: Decodable, Equatable {
    var code: String
    var detail: String?
  }

  var id: String
  var phase: Phase
  var progress: Progress
  var image: Image?
  var error: Failure?
  var attempts: Int

  /// - Returns: Nil if the body is not a job of an imagefetch service.
  init?(_ body: [UInt8]) {
    guard let job = try? JSONDecoder().decode(JobResponse.self, from: Data(body)), Self.isID(job.id)
    else { return nil }
    self = job
    progress.completed = Self.bounded(progress.completed)
    progress.total = progress.total.map(Self.bounded)
  }

  /// A finished job.
  init(id: String, phase: Phase, image: Image?, error: Failure?) {
    (self.id, self.phase, self.image, self.error, attempts) = (id, phase, image, error, 0)
    let bytes = Self.bounded(image?.bytes ?? 0)
    progress = Progress(completed: bytes, total: image == nil ? nil : bytes)
  }

  /// Whether the response says that an earlier attempt's job has been purged since.
  static func isGone(_ body: [UInt8]) -> Bool {
    struct Place: Decodable { var phase: String }
    return (try? JSONDecoder().decode(Place.self, from: Data(body)))?.phase == "gone"
  }

  /// Limits sizes that the server reports, so that sums cannot overflow.
  private static func bounded(_ bytes: Int) -> Int { min(max(0, bytes), 1 << 50) }

  /// Whether a text is a job's or batch's id. Ids become part of request paths.
  static func isID(_ text: String) -> Bool {
    1...64 ~= text.utf8.count && text.utf8.allSatisfy(isOfID)
  }

  private static func isOfID(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
      UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "-"):
      true
    default: false
    }
  }
}

/// A problem document of the service (RFC 9457).
struct ProblemResponse: Decodable, Equatable {
  struct Mistake: Decodable, Equatable {
    var pointer: String?
    var parameter: String?
    var code: String?
    var detail: String?
  }

  var code: String
  var detail: String?
  var errors: [Mistake]?
  /// The job's error, if the job has failed and therefore has no image.
  var error: JobResponse.Failure?

  /// - Returns: Nil if the body is not a problem of an imagefetch service.
  init?(_ body: [UInt8]) {
    guard let problem = try? JSONDecoder().decode(ProblemResponse.self, from: Data(body)) else {
      return nil
    }
    self = problem
  }

  /// The details of all mistakes, or the general detail if there are none.
  var text: String {
    let details = (errors ?? []).compactMap(\.detail)
    return details.isEmpty ? detail ?? code : details.joined(separator: " ")
  }

  /// The same with the member that each mistake is in, for example `headers/Host: …`.
  var placedText: String {
    let places = (errors ?? []).map { mistake in
      let place = mistake.pointer?.drop { $0 == "/" } ?? mistake.parameter?[...] ?? "the job"
      return "\(place): \(mistake.detail ?? code)"
    }
    return places.isEmpty ? text : places.joined(separator: "; ")
  }
}

/// The progress line of a running job.
struct JobLine: Equatable {
  /// The job's state in one word.
  enum Phase: String {
    case queued, loading, retrying, waiting, saving
  }

  var name: String
  var phase = Phase.queued
  var completed = 0
  var total: Int?
  /// Bytes per second.
  var rate = 0.0

  /// Formats a number of bytes in the dashboard's units: `812 B`, `1.2 MB`, `57 MB`.
  static func amount(_ bytes: Int) -> String {
    guard bytes >= 1000 else { return "\(max(0, bytes)) B" }
    var value = Double(bytes) / 1000
    var units = ["kB", "MB", "GB", "TB", "PB", "EB"][...]
    while value >= 999.5, units.count > 1 {
      value /= 1000
      units.removeFirst()
    }
    let tenths = Int((value * 10).rounded())
    let number = tenths < 100 ? "\(tenths / 10).\(tenths % 10)" : "\(Int(value.rounded()))"
    return "\(number) \(units.first ?? "")"
  }

  /// Formats bytes per second. Empty below one.
  static func pace(_ rate: Double) -> String { rate < 1 ? "" : amount(Int(min(rate, 1e18))) + "/s" }

  /// Returns the line, at most `width` columns wide.
  func text(width: Int, style: Style) -> String {
    let nameWidth = min(28, max(8, width / 4))
    var line = PlainText.columns(name, atMost: nameWidth).padded(to: nameWidth)
    let amounts =
      total.map { "\(Self.amount(completed))/\(Self.amount($0))" }
      ?? (completed > 0 ? Self.amount(completed) : "")
    let tail =
      amounts.padded(to: 19, onTheLeft: true)
      + Self.pace(rate).padded(to: 12, onTheLeft: true)
    let word = phase.rawValue.padded(to: 8)
    let barWidth = width - nameWidth - tail.count - word.count - 5
    if barWidth >= 6 { line += "  " + bar(barWidth, style) }
    // If the terminal is too narrow for everything, show the name and the phase.
    guard width >= nameWidth + 2 + word.count else { return String(line.prefix(max(0, width))) }
    if barWidth >= 0 { line += " " + tail }
    return line + "  " + style.faint(word)
  }

  private func bar(_ width: Int, _ style: Style) -> String {
    var filled = 0
    if let total, total > 0 {
      filled = Int(Double(width) * min(1, max(0, Double(completed) / Double(total))))
    }
    let full = String(repeating: style.isUnicode ? "━" : "#", count: filled)
    let empty = String(repeating: style.isUnicode ? "─" : "-", count: width - filled)
    return style.active(full) + style.faint(empty)
  }
}

extension String {
  fileprivate func padded(to width: Int, onTheLeft isLeft: Bool = false) -> String {
    let blanks = String(repeating: " ", count: max(0, width - count))
    return isLeft ? blanks + self : self + blanks
  }
}
