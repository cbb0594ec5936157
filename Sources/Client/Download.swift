internal import Glibc

/// Brings one URL after the other from its submission to a file, on one thread, whose calls block. What keeps it waiting
/// is the service's or the network's, and is waited out: a full queue for as long as it takes, a service that is away for
/// as long as ``Backoff`` says.
final class Download {
  let address: ServiceAddress
  let stop: CancellationFlag
  let connection: Connection
  let options: ImageOptions
  private let output: Output
  private let format: ImageOptions.Format?
  private let naming: Naming
  /// Told of progress; nil where nobody looks.
  let watcher: ((JobLine.Phase, JobAnswer.Progress?) -> Void)?

  /// - Parameter format: that which the files' names ask for.
  init?(
    to address: ServiceAddress, options: ImageOptions, output: Output, format: ImageOptions.Format?,
    naming: Naming, stop: CancellationFlag, watcher: ((JobLine.Phase, JobAnswer.Progress?) -> Void)?
  ) {
    guard let connection = Connection(to: address, stop: stop) else { return nil }
    (self.address, self.options, self.output) = (address, options, output)
    (self.format, self.naming) = (format, naming)
    (self.stop, self.watcher, self.connection) = (stop, watcher, connection)
  }

  /// Submits, follows, saves; or leaves alone what is there.
  /// - Parameter index: which one of all it is.
  func carry(_ url: String, index: Int) throws(EndOfRun) -> Outcome {
    if let outcome = naming.outcomeUnasked(of: url, index: index) { return outcome }
    let job: JobAnswer
    switch try submit(url) {
    case .job(let accepted): job = accepted
    case .refused(let outcome): return outcome
    }
    do throws(EndOfRun) {
      let outcome = try finish(job) { self.naming.name(of: url, index: index, ending: $0) }
      if address.isOurs { forget(job) }
      return ImageOptions.url(url) == url ? outcome : outcome.tellingOfScheme
    } catch {
      if !address.isOurs { cancel(job) }
      throw error
    }
  }

  /// Saves what became of a line of a batch.
  func carry(_ ended: ResultLine, of url: String, index: Int) throws(EndOfRun) -> Outcome {
    guard let job = ended.job else {
      let error = ended.error
      return .failed(code: error?.code ?? "invalid_option", detail: error?.detail ?? "")
    }
    let outcome = try finish(job) { self.naming.name(of: url, index: index, ending: $0) }
    return ImageOptions.url(url) == url ? outcome : outcome.tellingOfScheme
  }

  /// - Parameter naming: what a file is called in a folder, by the ending that its bytes have.
  private func finish(
    _ job: JobAnswer, naming: (String) -> String
  ) throws(EndOfRun) -> Outcome {
    var job = job
    while true {
      switch try followed(job) {
      case .refused(let outcome): return outcome
      case .job(let finished): job = finished
      }
      if let outcome = try saved(job, naming: naming) { return outcome }
    }
  }
}

extension Download {
  private enum Step {
    case job(JobAnswer)
    case refused(Outcome)
  }

  private func submit(_ url: String) throws(EndOfRun) -> Step {
    // A second try of a submission that did arrive is answered with the same job.
    let key = String(UInt64.random(in: .min ... .max), radix: 36)
    let answer = try ask(
      .init(
        method: "POST", path: "/jobs", fields: ["Idempotency-Key: get-\(key)"],
        body: options.submission(of: url),
        // Broken off, nobody would know the job's id and could cancel it.
        isStoppable: false))
    guard answer.status == 202, let job = JobAnswer(answer.body) else {
      if answer.status == 202, JobAnswer.isGone(answer.body) {
        return .refused(.failed(code: "not_found", detail: "The job is gone."))
      }
      guard answer.status == 422 || answer.status == 500, let problem = ProblemAnswer(answer.body)
      else { throw unexpected(answer) }
      let isOfURL = (problem.errors ?? []).allSatisfy { $0.pointer == "/url" }
      guard isOfURL else { throw .usage(PlainText.line(problem.placedText)) }
      let code = problem.errors?.first?.code ?? problem.code
      return .refused(.failed(code: code, detail: problem.text))
    }
    return .job(job)
  }

  /// What a job was given up for; where this command's own rules did it, with the flags that change them.
  private func outcome(of error: JobAnswer.Failure?) -> Outcome {
    let code = error?.code ?? "internal"
    var detail = error?.detail ?? ""
    if address.isOurs, code == "blocked_address" {
      detail += " This command may with --allow-network or --allow-private."
    }
    return .failed(code: code, detail: detail)
  }

  /// Waits until the job has finished, and tells of its progress on the way.
  private func followed(_ job: JobAnswer) throws(EndOfRun) -> Step {
    var job = job
    var entityTag: String?
    while true {
      tell(of: job)
      switch job.phase {
      case .success: return .job(job)
      case .failure:
        return .refused(outcome(of: job.error))
      case .cancelled: return .refused(.failed(code: "cancelled", detail: "The job was cancelled."))
      case .queued, .loading: break
      }
      let asked = ContinuousClock.now
      if let answer = try news(of: job, since: &entityTag) {
        guard let next = JobAnswer(answer.body) else { return .refused(try refusal(answer)) }
        if next == job, asked.duration(to: .now) < .milliseconds(200) { try rest() }
        job = next
      }
    }
  }

  /// - Returns: nil where there is none yet.
  private func news(
    of job: JobAnswer, since entityTag: inout String?
  ) throws(EndOfRun) -> Connection.Answer? {
    var request = Connection.Request(path: "/jobs/\(job.id)?wait=30", seconds: 90)
    if watcher != nil {
      // The first look learns the version, from which on each change is news.
      if let entityTag { request.fields = ["If-None-Match: \(entityTag)"] }
      if entityTag == nil { request.path = "/jobs/\(job.id)" }
    }
    let answer = try ask(request)
    if answer.status == 304 { return nil }
    entityTag = answer.fields["etag"]
    return answer
  }

  /// - Returns: nil where the job has no image any more, and has to be followed again.
  private func saved(
    _ job: JobAnswer, naming: (String) -> String
  ) throws(EndOfRun) -> Outcome? {
    let partial: PartialFile
    do { partial = try output.makePartial() } catch { throw .mistake(error.text) }
    watcher?(.saving, job.progress)
    let query = options.meeting(format, of: job.image).query
    let path = "/jobs/\(job.id)/image\(query)"
    let request = Connection.Request(
      path: path, seconds: nil, sink: (partial.descriptor, Self.maxImageBytes))
    let answer = try ask(request) { () throws(EndOfRun) in
      do throws(SaveError) { try partial.restart() } catch { throw .mistake(error.text) }
    }
    if answer.status == 202 { return nil }
    guard answer.status == 200 else { return try refusal(answer) }
    let type = answer.fields["content-type"]
    if options.format == nil, let ending = output.foreignEnding, type != "image/\(ending)" {
      return .failed(
        code: "unsupported_format",
        detail: "It is no \(ending), and none is made of it: .jpg, .png, .webp and .avif are.")
    }
    let name = naming(FileName.ending(of: type))
    do {
      let isWhole = query.isEmpty
      let format = type?.split(separator: "/").last.map(String.init) ?? "unknown"
      return .saved(
        SavedImage(
          path: try output.place(partial, named: name),
          size: isWhole ? job.image.map { ($0.width, $0.height) } : nil,
          format: isWhole ? job.image?.format ?? format : format, bytes: answer.saved))
    } catch {
      throw error.cause.code == EPIPE ? .outputClosed : .mistake(error.text)
    }
  }

  /// The most that a service can be configured to take.
  private static let maxImageBytes = 4 << 30

  /// What a problem says of a single job.
  private func refusal(_ answer: Connection.Answer) throws(EndOfRun) -> Outcome {
    guard answer.status >= 400, let problem = ProblemAnswer(answer.body) else {
      throw unexpected(answer)
    }
    let failure = problem.error ?? JobAnswer.Failure(code: problem.code, detail: problem.text)
    return .failed(code: failure.code, detail: failure.detail ?? problem.text)
  }

  /// Lets the service forget the job and all that it keeps of it.
  private func forget(_ job: JobAnswer) {
    // Its image is saved, or can't be: nothing that happens now is to change what is told of it.
    _ = try? connection.send(
      .init(method: "DELETE", path: "/jobs/\(job.id)?purge=true", isStoppable: false))
  }

  private func cancel(_ job: JobAnswer) {
    // Nothing can be done about a failure, and nobody would wait for it.
    _ = try? connection.send(
      .init(method: "DELETE", path: "/jobs/\(job.id)", seconds: 5, isStoppable: false))
  }

  private func tell(of job: JobAnswer) {
    guard let watcher else { return }
    switch job.phase {
    case .loading: watcher(.loading, job.progress)
    case .queued where job.attempts > 0: watcher(.retrying, job.progress)
    default: watcher(.queued, job.progress)
    }
  }
}
