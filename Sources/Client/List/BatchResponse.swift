internal import FoundationEssentials

/// A batch in a response of the service, with the members that the client needs.
struct BatchResponse: Decodable, Equatable {
  enum State: String, Decodable {
    case receiving, running, finished, cancelled
  }

  var id: String
  var state: State
  var received: Int

  /// - Returns: Nil if the body is not a batch of an imagefetch service.
  init?(_ body: [UInt8]) {
    guard let batch = try? JSONDecoder().decode(BatchResponse.self, from: Data(body)),
      JobResponse.isID(batch.id), batch.received >= 0
    else { return nil }
    self = batch
  }
}

/// The result of one line of a batch.
struct ResultLine: Equatable {
  var line: Int
  /// Nil if the line was rejected.
  var job: JobResponse?
  var error: JobResponse.Failure?

  /// - Parameter text: A line of the results.
  /// - Returns: Nil if it is not a result of an imagefetch service.
  init?(_ text: ArraySlice<UInt8>) {
    struct Line: Decodable {
      var line: Int
      var job: String?
      var phase: String
      var image: JobResponse.Image?
      var error: JobResponse.Failure?
    }
    guard let line = try? JSONDecoder().decode(Line.self, from: Data(text)),
      1..<Int.max ~= line.line
    else { return nil }
    (self.line, error) = (line.line, line.error)
    guard line.phase != "rejected" else { return }
    guard let id = line.job, JobResponse.isID(id),
      let phase = JobResponse.Phase(rawValue: line.phase)
    else { return nil }
    job = JobResponse(id: id, phase: phase, image: line.image, error: line.error)
  }

  init(line: Int, job: JobResponse?, error: JobResponse.Failure?) {
    (self.line, self.job, self.error) = (line, job, error)
  }
}

/// A page of jobs with their places in batches.
struct JobPageResponse: Decodable {
  struct Place: Decodable {
    var id: String
    var line: Int
  }

  struct Entry: Decodable {
    var place: Place?
    var job: JobResponse

    init(from decoder: any Decoder) throws {
      enum Keys: CodingKey { case batch }
      place = try decoder.container(keyedBy: Keys.self).decodeIfPresent(Place.self, forKey: .batch)
      job = try JobResponse(from: decoder)
    }
  }

  var jobs: [Entry]
  var next_cursor: String?

  /// - Returns: Nil if the body is not a page of an imagefetch service.
  init?(_ body: [UInt8]) {
    guard let page = try? JSONDecoder().decode(JobPageResponse.self, from: Data(body)),
      page.jobs.allSatisfy({ JobResponse.isID($0.job.id) }),
      page.next_cursor.map(JobResponse.isID) ?? true
    else { return nil }
    self = page
  }
}
