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
