internal import Jobs

/// The JSON of a batch, with the members in the order of openapi.yaml, and the lines of its results.
enum BatchDocument {
  /// Encodes a batch. Its rate and ETA are computed for `moment`.
  static func encode(_ batch: Batch, at moment: Timestamp) -> [UInt8] {
    var writer = JSONWriter()
    write(batch, at: moment, to: &writer)
    return writer.bytes
  }

  /// Encodes a batch of an earlier request with the same idempotency key that has been deleted since.
  static func encode(gone id: BatchID) -> [UInt8] {
    var writer = JSONWriter()
    writer.object { json in
      json.member("id", id.description)
      json.member("state", "gone")
    }
    return writer.bytes
  }

  /// Encodes one page of `GET /batches`.
  static func encode(page: [Batch], nextCursor: String?, at moment: Timestamp) -> [UInt8] {
    var writer = JSONWriter(capacity: 1024 * (page.count + 1))
    writer.object { json in
      json.key("batches")
      json.array(page) { write($1, at: moment, to: &$0) }
      json.member("next_cursor", nextCursor)
    }
    return writer.bytes
  }

  private static func write(_ batch: Batch, at moment: Timestamp, to writer: inout JSONWriter) {
    let id = batch.id.description
    writer.object { json in
      json.member("id", id)
      json.member("name", batch.name)
      json.member("state", batch.state.rawValue)
      json.key("tags")
      json.array(batch.tags) { $0.string($1) }
      json.member("received", batch.received)
      json.key("counts")
      batch.shownCounts.write(to: &json)
      json.key("codes")
      json.object { codes in
        for (code, count) in batch.counts.codes { codes.member(code.rawValue, count) }
      }
      json.member("bytes", batch.counts.bytes)
      json.member("rate", rounded(batch.rate(at: moment)))
      json.member("eta", batch.eta(at: moment).map(rounded))
      json.member("version", batch.revision)
      json.member("created_at", batch.createdAt.description)
      json.member("finished_at", batch.finishedAt?.description)
      json.member("expires_at", batch.expiresAt?.description)
      json.key("links")
      json.object { links in
        links.member("self", "/batches/\(id)")
        links.member("jobs", "/jobs?batch=\(id)")
        links.member("results", "/batches/\(id)/results")
        links.member("events", "/batches/\(id)/events")
      }
    }
  }

  /// Rounds to one decimal.
  private static func rounded(_ value: Double) -> Double { (value * 10).rounded() / 10 }

  /// Writes one line of the results.
  static func write(_ line: BatchResults.Line, to writer: inout JSONWriter) {
    writer.object { json in
      switch line {
      case .job(let job, let line):
        json.member("line", line)
        json.member("url", job.submission.shownURL)
        json.member("job", job.id.description)
        json.member("phase", job.phase.rawValue)
        json.key("image")
        if let image = job.image {
          image.write(of: job.id.description, .full, to: &json)
        } else {
          json.null()
        }
        json.key("error")
        if let failure = job.failure { failure.write(to: &json) } else { json.null() }
      case .rejected(let rejected):
        json.member("line", rejected.line)
        json.member("url", rejected.url)
        json.member("job", nil as String?)
        json.member("phase", "rejected")
        json.key("image")
        json.null()
        json.key("error")
        rejected.write(to: &json)
      }
    }
  }
}

extension Batch {
  /// The strong entity tag. It covers all members except the rate and the ETA.
  var entityTag: String { "\"\(revision)\"" }
}

extension BatchCounts {
  fileprivate func write(to writer: inout JSONWriter) {
    writer.object { json in
      json.member("queued", self[.queued])
      json.member("loading", self[.loading])
      json.member("success", self[.success])
      json.member("failure", self[.failure])
      json.member("cancelled", self[.cancelled])
      json.member("rejected", rejected)
    }
  }
}

extension Submission {
  /// The URL or the name of the local image.
  fileprivate var shownURL: String? {
    switch source {
    case .url(let url, _): url.string
    case .local(let name): name
    case .captured: nil
    }
  }
}

extension RejectedLine {
  /// Writes the error in the form of a failed job's error.
  fileprivate func write(to writer: inout JSONWriter) {
    let code = ProblemCode(name: code) ?? .request(.invalidOption)
    writer.object { json in
      json.member("type", code.type)
      json.member("title", code.row.title)
      json.member("detail", detail)
      json.member("code", code.name)
      json.member("retryable", false)
      json.member("origin_status", nil as Int?)
    }
  }
}
