internal import Glibc

/// Downloads one URL after the other, from the submission of its job to its file. It uses one thread;
/// calls block.
///
/// Delays of the service are waited for: a full queue without a limit, an unreachable service as long
/// as ``Backoff`` allows.
final class Download {
  let address: ServiceAddress
  let stop: CancellationFlag
  let connection: Connection
  let options: ImageOptions
  private let output: Output
  private let format: ImageOptions.Format?
  private let naming: Naming
  /// Receives the progress; nil if no progress is displayed.
  let watcher: ((JobLine.Phase, JobAnswer.Progress?) -> Void)?

  /// - Parameter format: The format that the file names imply.
  init?(
    to address: ServiceAddress, options: ImageOptions, output: Output, format: ImageOptions.Format?,
    naming: Naming, stop: CancellationFlag, watcher: ((JobLine.Phase, JobAnswer.Progress?) -> Void)?
  ) {
    guard let connection = Connection(to: address, stop: stop) else { return nil }
    (self.address, self.options, self.output) = (address, options, output)
    (self.format, self.naming) = (format, naming)
    (self.stop, self.watcher, self.connection) = (stop, watcher, connection)
  }

  /// Submits a URL, waits for its job and saves the image. Skips the URL if its file exists.
  /// - Parameter index: The URL's number in the run, from 1 on.
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

  /// Saves the image of a batch line that has ended.
  func carry(_ ended: ResultLine, of url: String, index: Int) throws(EndOfRun) -> Outcome {
    guard let job = ended.job else {
      let error = ended.error
      return .failed(code: error?.code ?? "invalid_option", detail: error?.detail ?? "")
    }
    let outcome = try finish(job) { self.naming.name(of: url, index: index, ending: $0) }
    return ImageOptions.url(url) == url ? outcome : outcome.tellingOfScheme
  }

  /// - Parameter naming: Returns a file's name in the folder for a file extension.
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
    // The key makes the service return the same job if an earlier attempt had arrived.
    let key = String(UInt64.random(in: .min ... .max), radix: 36)
    let answer = try ask(
      .init(
        method: "POST", path: "/jobs", fields: ["Idempotency-Key: get-\(key)"],
        body: options.submission(of: url),
        // An aborted submission would leave a job whose id is unknown, so it could not be cancelled.
        isStoppable: false))
    guard answer.status == 202, let job = JobAnswer(answer.body) else {
      if answer.status == 202, JobAnswer.isGone(answer.body) {
        return .refused(.failed(code: "not_found", detail: "The job has been deleted."))
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

  /// Returns the outcome of a failed job. For a URL that this command's own rules blocked, the detail
  /// names the flags that change them.
  private func outcome(of error: JobAnswer.Failure?) -> Outcome {
    let code = error?.code ?? "internal"
    var detail = error?.detail ?? ""
    if address.isOurs, code == "blocked_address" {
      detail += " Allow the network with --allow-network or --allow-private."
    }
    return .failed(code: code, detail: detail)
  }

  /// Waits until the job has finished, and reports its progress.
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

  /// Waits for a change of the job.
  /// - Returns: Nil if nothing has changed yet.
  private func news(
    of job: JobAnswer, since entityTag: inout String?
  ) throws(EndOfRun) -> Connection.Answer? {
    var request = Connection.Request(path: "/jobs/\(job.id)?wait=30", seconds: 90)
    if watcher != nil {
      // The first request returns the job's version. Later requests wait until the version changes.
      if let entityTag { request.fields = ["If-None-Match: \(entityTag)"] }
      if entityTag == nil { request.path = "/jobs/\(job.id)" }
    }
    let answer = try ask(request)
    if answer.status == 304 { return nil }
    entityTag = answer.fields["etag"]
    return answer
  }

  /// Downloads the job's image and saves it.
  /// - Returns: Nil if the job has no image any more and must be waited for again.
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
        detail: "The image is not \(ending). It can be saved as .jpg, .png, .webp or .avif.")
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

  /// The largest image size that a service can be configured to accept.
  private static let maxImageBytes = 4 << 30

  /// Returns the outcome of a problem response about one job.
  private func refusal(_ answer: Connection.Answer) throws(EndOfRun) -> Outcome {
    guard answer.status >= 400, let problem = ProblemAnswer(answer.body) else {
      throw unexpected(answer)
    }
    let failure = problem.error ?? JobAnswer.Failure(code: problem.code, detail: problem.text)
    return .failed(code: failure.code, detail: failure.detail ?? problem.text)
  }

  /// Deletes the job and everything that the service keeps for it.
  private func forget(_ job: JobAnswer) {
    // The image was saved or has failed, so an error here does not change the outcome.
    _ = try? connection.send(
      .init(method: "DELETE", path: "/jobs/\(job.id)?purge=true", isStoppable: false))
  }

  private func cancel(_ job: JobAnswer) {
    // A failure cannot be handled here, so it is ignored.
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
