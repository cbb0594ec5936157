internal import FoundationEssentials

/// A job as the service tells of it: the members that matter here. Others may be there.
struct JobAnswer: Decodable, Equatable {
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
    /// Pictures of an animation; 1: it is none.
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

  /// - Returns: nil for what is no job of an imagefetch service.
  init?(_ body: [UInt8]) {
    guard let job = try? JSONDecoder().decode(JobAnswer.self, from: Data(body)), Self.isID(job.id)
    else { return nil }
    self = job
    progress.completed = Self.bounded(progress.completed)
    progress.total = progress.total.map(Self.bounded)
  }

  /// One that has finished.
  init(id: String, phase: Phase, image: Image?, error: Failure?) {
    (self.id, self.phase, self.image, self.error, attempts) = (id, phase, image, error, 0)
    let bytes = Self.bounded(image?.bytes ?? 0)
    progress = Progress(completed: bytes, total: image == nil ? nil : bytes)
  }

  /// Whether an earlier try of the submission made a job that somebody has purged since.
  static func isGone(_ body: [UInt8]) -> Bool {
    struct Place: Decodable { var phase: String }
    return (try? JSONDecoder().decode(Place.self, from: Data(body)))?.phase == "gone"
  }

  /// Sums of what a server says must not overflow.
  private static func bounded(_ bytes: Int) -> Int { min(max(0, bytes), 1 << 50) }

  /// It becomes part of paths.
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

/// A problem document (RFC 9457), as the service writes them.
struct ProblemAnswer: Decodable, Equatable {
  struct Mistake: Decodable, Equatable {
    var pointer: String?
    var parameter: String?
    var code: String?
    var detail: String?
  }

  var code: String
  var detail: String?
  var errors: [Mistake]?
  /// The job's, where the problem is that it has no image.
  var error: JobAnswer.Failure?

  /// - Returns: nil for what is none of an imagefetch service.
  init?(_ body: [UInt8]) {
    guard let problem = try? JSONDecoder().decode(ProblemAnswer.self, from: Data(body)) else {
      return nil
    }
    self = problem
  }

  /// What is wrong, the single mistakes where they are told.
  var text: String {
    let details = (errors ?? []).compactMap(\.detail)
    return details.isEmpty ? detail ?? code : details.joined(separator: " ")
  }

  /// The same with the members that the single mistakes are in: `headers/Host: …`.
  var placedText: String {
    let places = (errors ?? []).map { mistake in
      let place = mistake.pointer?.drop { $0 == "/" } ?? mistake.parameter?[...] ?? "the job"
      return "\(place): \(mistake.detail ?? code)"
    }
    return places.isEmpty ? text : places.joined(separator: "; ")
  }
}
