internal import FoundationEssentials
internal import Jobs

/// The JSON of a job, with the members in the order of openapi.yaml.
enum JobDocument {
  /// Encodes a job without `waiting_for`. The bytes depend only on the job, so one version has one encoding.
  static func encode(_ job: Job) -> [UInt8] { encode(job, .full) }

  /// The members to include. Each case leaves out more than the one before.
  enum DetailLevel: Comparable, CaseIterable {
    case full, withoutOtherURLs, withoutTags
    /// Also without the keys and ETags of its deliveries.
    case withoutVariants
  }

  /// Encodes a job without `waiting_for` and without the members that `brevity` leaves out.
  static func encode(_ job: Job, _ brevity: DetailLevel) -> [UInt8] {
    var writer = JSONWriter()
    write(job, nil, brevity, to: &writer)
    return writer.bytes
  }

  /// Adds `waiting_for` to an encoded job. It is the last member, so the rest is not encoded again.
  static func encode(_ document: [UInt8], _ waiting: WaitingFor) -> [UInt8] {
    var writer = JSONWriter(capacity: 256)
    waiting.write(to: &writer)
    // `dropLast()` would copy the array byte by byte.
    var bytes = document
    bytes.removeLast("null}".utf8.count)
    bytes += writer.bytes
    bytes.append(UInt8(ascii: "}"))
    return bytes
  }

  /// Encodes a job of an earlier submission with the same idempotency key that has been deleted since.
  static func encode(gone id: JobID) -> [UInt8] {
    var writer = JSONWriter(capacity: 64)
    writer.object { json in
      json.member("id", id.description)
      json.member("phase", "gone")
    }
    return writer.bytes
  }

  /// Encodes the response to an array of jobs, in the order given.
  static func encode(batch documents: [[UInt8]]) -> [UInt8] {
    var writer = JSONWriter(capacity: 1024 * documents.count)
    writer.object { json in
      json.key("jobs")
      json.array(documents) { $0.value($1) }
    }
    return writer.bytes
  }

  /// Encodes one page of `GET /jobs`.
  static func encode(
    page: [Job], nextCursor: String?, waiting: (Job) -> WaitingFor?
  ) -> [UInt8] {
    var writer = JSONWriter(capacity: 1024 * (page.count + 1))
    writer.object { json in
      json.key("jobs")
      json.array(page) { write($1, waiting($1), .full, to: &$0) }
      json.member("next_cursor", nextCursor)
    }
    return writer.bytes
  }

  private static func write(
    _ job: Job, _ waiting: WaitingFor?, _ brevity: DetailLevel, to writer: inout JSONWriter
  ) {
    let id = job.id.description
    writer.object { json in
      json.member("id", id)
      json.member("phase", job.phase.rawValue)
      json.key("source")
      job.submission.source.write(brevity, to: &json)
      json.member("priority", job.priority.word)
      json.key("progress")
      job.progress.write(previews: job.previews, to: &json)
      json.key("image")
      if let image = job.image { image.write(of: id, brevity, to: &json) } else { json.null() }
      json.key("error")
      if let failure = job.failure { failure.write(to: &json) } else { json.null() }
      json.key("last_error")
      // While the alternatives of an attempt remain, the attempt has not failed.
      if let failure = job.lastFailure, job.nextAttempt != nil {
        failure.write(to: &json)
      } else {
        json.null()
      }
      json.member("next_attempt_at", job.nextAttempt?.description)
      json.member("attempts", job.attempts)
      json.key("tags")
      json.array(brevity < .withoutTags ? job.tags : []) { $0.string($1) }
      json.key("batch")
      if let batch = job.batch { batch.write(to: &json) } else { json.null() }
      json.key("cache")
      if let cache = job.cache { cache.write(to: &json) } else { json.null() }
      json.key("deliveries")
      json.array(job.deliveries) { $1.write(brevity, to: &$0) }
      json.key("timings")
      job.timings.write(to: &json)
      json.member("version", job.version)
      json.member("created_at", job.createdAt.description)
      json.member("started_at", job.startedAt?.description)
      json.member("finished_at", job.finishedAt?.description)
      json.member("expires_at", job.expiresAt?.description)
      json.key("links")
      json.object { links in
        links.member("self", "/jobs/\(id)")
        links.member("image", "/jobs/\(id)/image")
        links.member("events", "/jobs/\(id)/events")
        links.member("preview", "/jobs/\(id)/preview")
      }
      // The last member, so that it can be appended to an encoded job.
      json.key("waiting_for")
      if let waiting { waiting.write(to: &json) } else { json.null() }
    }
  }
}

extension JobSnapshot {
  /// The job's JSON with what it waits for now.
  func document(_ waiting: WaitingFor?) -> [UInt8] {
    let document = encoded(JobDocument.encode)
    guard let waiting else { return document }
    return JobDocument.encode(document, waiting)
  }

  /// The job's strong entity tag (RFC 9110 section 8.8.3). It covers all members except `waiting_for`: one version has
  /// one encoding.
  var entityTag: String { Self.tag(of: job.version) }

  /// The version with this entity tag, quotes included; nil if there is none.
  static func version(ofTag tag: Substring) -> Int? {
    Int(tag.dropFirst().dropLast()).flatMap { $0 > 0 && Self.tag(of: $0) == tag ? $0 : nil }
  }

  private static func tag(of version: Int) -> String { "\"\(version)\"" }
}

extension Routes {
  /// The job's JSON with what it waits for now.
  func document(of snapshot: JobSnapshot) -> [UInt8] {
    snapshot.document(service.waiting(of: snapshot.job))
  }

  /// The same for a job that may have been deleted.
  func document(of submitted: SubmittedJob) -> [UInt8] {
    submitted.snapshot.map(document) ?? JobDocument.encode(gone: submitted.id)
  }
}

extension BatchPosition {
  fileprivate func write(to writer: inout JSONWriter) {
    writer.object { json in
      json.member("id", id.description)
      json.member("line", line)
    }
  }
}

extension WaitingFor {
  fileprivate func write(to writer: inout JSONWriter) {
    writer.object { json in
      json.member("reason", reason.rawValue)
      json.member("origin", origin)
      json.member("until", until?.description)
      json.member("ahead", ahead)
    }
  }
}

extension Source {
  fileprivate func write(_ brevity: JobDocument.DetailLevel, to writer: inout JSONWriter) {
    writer.object { json in
      switch self {
      case .url(let url, let lowData):
        json.member("url", url.string)
        json.member("low_data_url", brevity == .full ? lowData?.string : nil)
      case .local(let name): json.member("local", name)
      case .captured(_, let bytes, let contentType):
        json.key("captured")
        json.object { captured in
          captured.member("bytes", bytes)
          captured.member("content_type", contentType)
        }
      }
    }
  }
}

extension Progress {
  fileprivate func write(previews: Int, to writer: inout JSONWriter) {
    writer.object { json in
      json.member("completed", completed)
      json.member("total", total)
      json.member("fraction", fraction)
      json.member("resumed_from", resumedFrom)
      json.member("previews", previews)
    }
  }
}

extension StoredImage {
  /// The strong entity tag of the original.
  var entityTag: String { digest.entityTag }

  func write(
    of id: String, _ brevity: JobDocument.DetailLevel, to writer: inout JSONWriter
  ) {
    writer.object { json in
      json.member("format", description.format.rawValue)
      json.member("content_type", description.format.contentType)
      json.member("width", description.width)
      json.member("height", description.height)
      json.key("display")
      json.object { display in
        let (width, height) = description.uprightSize
        display.member("width", width)
        display.member("height", height)
      }
      json.member("bytes", bytes)
      json.member("etag", entityTag)
      json.member("sha256", digest.hex)
      json.member("orientation", description.orientation)
      json.member("progressive", description.isProgressive)
      json.member("has_alpha", description.hasAlpha)
      json.member("frames", description.frames)
      json.member("variant", variant.rawValue)
      json.member("url", brevity == .full ? url?.string : nil)
      json.member("thumbhash", description.lqip?.base64)
      json.member("dominant_color", description.lqip?.colorCode)
      json.member("original", bundle == nil ? "keep" : "drop")
      json.key("variants")
      json.array(brevity < .withoutVariants ? variants : []) { $1.write(of: id, to: &$0) }
    }
  }
}

extension MadeVariant {
  fileprivate func write(of id: String, to writer: inout JSONWriter) {
    writer.object { json in
      json.member("name", name)
      json.member("width", width)
      json.member("height", height)
      json.member("format", format.rawValue)
      json.member("content_type", format.contentType)
      json.member("bytes", bytes)
      json.member("etag", entityTag)
      json.member("href", "/jobs/\(id)/image?variant=\(name)")
    }
  }
}

extension LQIP {
  /// The ThumbHash in base64, as its decoders expect it.
  fileprivate var base64: String { Data(thumbHash).base64EncodedString() }

  /// The dominant color as a CSS color: `#rrggbb`.
  fileprivate var colorCode: String { "#" + dominantColor.hexDigits }
}

extension CacheOutcome {
  fileprivate func write(to writer: inout JSONWriter) {
    writer.object { json in
      json.member("status", status.rawValue)
      json.member("age", age)
      json.member("fresh_until", freshUntil?.description)
    }
  }
}

extension Delivered {
  fileprivate func write(_ brevity: JobDocument.DetailLevel, to writer: inout JSONWriter) {
    writer.object { json in
      if let destination {
        json.member("to", destination)
      } else {
        json.member("put", brevity == .full ? url : nil)
      }
      let isNamed = brevity < .withoutVariants
      json.member("key", isNamed ? key : nil)
      json.member("what", variant ?? "original")
      json.member("bytes", bytes)
      json.member("etag", isNamed ? entityTag : nil)
    }
  }
}

extension Timings {
  fileprivate func write(to writer: inout JSONWriter) {
    writer.object { json in
      json.member("queued_ms", queued?.milliseconds)
      json.member("dns_ms", dns?.milliseconds)
      json.member("connect_ms", connect?.milliseconds)
      json.member("tls_ms", tls?.milliseconds)
      json.member("first_byte_ms", firstByte?.milliseconds)
      json.member("body_ms", body?.milliseconds)
      json.member("fetch_ms", fetch?.milliseconds)
      json.member("decode_ms", decode?.milliseconds)
    }
  }
}

extension Duration {
  /// Milliseconds with three decimals.
  fileprivate var milliseconds: Double { (inSeconds * 1e6).rounded() / 1000 }
}

extension Priority {
  /// The priority in the API's spelling.
  package var word: String {
    switch self {
    case .veryLow: "very_low"
    case .low: "low"
    case .normal: "normal"
    case .high: "high"
    case .veryHigh: "very_high"
    }
  }

  /// Parses the API's spelling.
  package init?(word: String) {
    guard let priority = Priority.allCases.first(where: { $0.word == word }) else { return nil }
    self = priority
  }
}

extension Activity {
  /// The response of `GET /activity`. One array per figure takes half the bytes of one object per step.
  var json: [UInt8] {
    var writer = JSONWriter(capacity: 4096)
    writer.object { writer in
      writer.key("interval")
      writer.int(Self.interval)
      writer.key("end")
      writer.string(end.description)
      let columns: [(StaticString, KeyPath<Step, Int>)] = [
        ("queued", \.queued), ("loading", \.loading), ("succeeded", \.succeeded),
        ("failed", \.failed),
      ]
      for (name, path) in columns {
        writer.key(name)
        writer.array(steps) { $0.int($1[keyPath: path]) }
      }
    }
    return writer.bytes
  }
}
