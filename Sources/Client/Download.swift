internal import Glibc

/// Downloads one URL after the other, from the submission of its job to its file. It uses one thread;
/// calls block.
///
/// Delays of the service are waited for: a full queue without a limit, an unreachable service as long
/// as ``Backoff`` allows.
final class Download {
  let address: ServiceAddress
  let stop: CancellationFlag
  let connection: ServiceConnection
  let options: ImageOptions
  private let output: Output
  private let format: ImageOptions.Format?
  private let naming: Naming
  /// Receives the progress; nil if no progress is displayed.
  let watcher: ((JobLine.Phase, JobResponse.Progress?) -> Void)?

  /// - Parameter format: The format that the file names imply.
  init?(
    to address: ServiceAddress, options: ImageOptions, output: Output, format: ImageOptions.Format?,
    naming: Naming, stop: CancellationFlag,
    watcher: ((JobLine.Phase, JobResponse.Progress?) -> Void)?
  ) {
    guard let connection = ServiceConnection(to: address, stop: stop) else { return nil }
    (self.address, self.options, self.output) = (address, options, output)
    (self.format, self.naming) = (format, naming)
    (self.stop, self.watcher, self.connection) = (stop, watcher, connection)
  }

  /// Submits a URL, waits for its job and saves the image. Skips the URL if its file exists.
  /// - Parameter index: The URL's number in the run, from 1 on.
  func download(_ url: String, index: Int) throws(EndOfRun) -> Outcome {
    if let outcome = naming.outcomeWithoutRequest(of: url, index: index) { return outcome }
    let job: JobResponse
    switch try submit(url) {
    case .job(let accepted): job = accepted
    case .refused(let outcome): return outcome
    }
    do throws(EndOfRun) {
      let outcome = try finish(job) { self.naming.name(of: url, index: index, ending: $0) }
      if address.isInProcess { purge(job) }
      return ImageOptions.url(url) == url ? outcome : outcome.mentioningScheme
    } catch {
      if !address.isInProcess { cancel(job) }
      throw error
    }
  }

  /// Saves the image of a batch line that has ended.
  func save(_ ended: ResultLine, of url: String, index: Int) throws(EndOfRun) -> Outcome {
    guard let job = ended.job else {
      let error = ended.error
      return .failed(code: error?.code ?? "invalid_option", detail: error?.detail ?? "")
    }
    let outcome = try finish(job) { self.naming.name(of: url, index: index, ending: $0) }
    return ImageOptions.url(url) == url ? outcome : outcome.mentioningScheme
  }

  /// - Parameter naming: Returns a file's name in the folder for a file extension.
  private func finish(
    _ job: JobResponse, naming: (String) -> String
  ) throws(EndOfRun) -> Outcome {
    var job = job
    while true {
      switch try waitUntilFinished(job) {
      case .refused(let outcome): return outcome
      case .job(let finished): job = finished
      }
      if let outcome = try saveImage(of: job, naming: naming) { return outcome }
    }
  }
}

extension Download {
  private enum Step {
    case job(JobResponse)
    case refused(Outcome)
  }

  private func submit(_ url: String) throws(EndOfRun) -> Step {
    // The key makes the service return the same job if an earlier attempt had arrived.
    let key = String(UInt64.random(in: .min ... .max), radix: 36)
    let answer = try sendUntilAnswered(
      .init(
        method: "POST", path: "/jobs", fields: ["Idempotency-Key: get-\(key)"],
        body: options.submission(of: url),
        // An aborted submission would leave a job whose id is unknown, so it could not be cancelled.
        isStoppable: false))
    guard answer.status == 202, let job = JobResponse(answer.body) else {
      if answer.status == 202, JobResponse.isGone(answer.body) {
        return .refused(.failed(code: "not_found", detail: "The job has been deleted."))
      }
      guard answer.status == 422 || answer.status == 500, let problem = ProblemResponse(answer.body)
      else { throw unexpectedResponse(answer) }
      let isOfURL = (problem.errors ?? []).allSatisfy { $0.pointer == "/url" }
      guard isOfURL else { throw .usage(PlainText.line(problem.placedText)) }
      let code = problem.errors?.first?.code ?? problem.code
      return .refused(.failed(code: code, detail: problem.text))
    }
    return .job(job)
  }

  /// Returns the outcome of a failed job. For a URL that this command's own rules blocked, the detail
  /// names the flags that change them.
  private func outcome(of error: JobResponse.Failure?) -> Outcome {
    let code = error?.code ?? "internal"
    var detail = error?.detail ?? ""
    if address.isInProcess, code == "blocked_address" {
      detail += " Allow the network with --allow-network or --allow-private."
    }
    return .failed(code: code, detail: detail)
  }

  /// Waits until the job has finished, and reports its progress.
  private func waitUntilFinished(_ job: JobResponse) throws(EndOfRun) -> Step {
    var job = job
    var entityTag: String?
    while true {
      reportProgress(of: job)
      switch job.phase {
      case .success: return .job(job)
      case .failure:
        return .refused(outcome(of: job.error))
      case .cancelled: return .refused(.failed(code: "cancelled", detail: "The job was cancelled."))
      case .queued, .loading: break
      }
      let asked = ContinuousClock.now
      if let answer = try change(of: job, since: &entityTag) {
        guard let next = JobResponse(answer.body) else { return .refused(try refusal(answer)) }
        if next == job, asked.duration(to: .now) < .milliseconds(200) { try pauseBriefly() }
        job = next
      }
    }
  }

  /// Waits for a change of the job.
  /// - Returns: Nil if nothing has changed yet.
  private func change(
    of job: JobResponse, since entityTag: inout String?
  ) throws(EndOfRun) -> ServiceConnection.Response? {
    var request = ServiceConnection.Request(path: "/jobs/\(job.id)?wait=30", seconds: 90)
    if watcher != nil {
      // The first request returns the job's version. Later requests wait until the version changes.
      if let entityTag { request.fields = ["If-None-Match: \(entityTag)"] }
      if entityTag == nil { request.path = "/jobs/\(job.id)" }
    }
    let answer = try sendUntilAnswered(request)
    if answer.status == 304 { return nil }
    entityTag = answer.fields["etag"]
    return answer
  }

  /// Downloads the job's image and saves it.
  /// - Returns: Nil if the job has no image any more and must be waited for again.
  private func saveImage(
    of job: JobResponse, naming: (String) -> String
  ) throws(EndOfRun) -> Outcome? {
    let partial: PartialFile
    do { partial = try output.makePartial() } catch { throw .mistake(error.text) }
    watcher?(.saving, job.progress)
    let query = options.meeting(format, of: job.image).query
    let path = "/jobs/\(job.id)/image\(query)"
    let request = ServiceConnection.Request(
      path: path, seconds: nil, sink: (partial.descriptor, Self.maxImageBytes))
    let answer = try sendUntilAnswered(request) { () throws(EndOfRun) in
      do throws(SaveError) { try partial.restart() } catch { throw .mistake(error.text) }
    }
    if answer.status == 202 { return nil }
    guard answer.status == 200 else { return try refusal(answer) }
    let type = answer.fields["content-type"]
    if options.format == nil, let ending = output.foreignEnding,
      FileName.ending(of: type) != ending
    {
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
  private func refusal(_ answer: ServiceConnection.Response) throws(EndOfRun) -> Outcome {
    guard answer.status >= 400, let problem = ProblemResponse(answer.body) else {
      throw unexpectedResponse(answer)
    }
    let failure = problem.error ?? JobResponse.Failure(code: problem.code, detail: problem.text)
    return .failed(code: failure.code, detail: failure.detail ?? problem.text)
  }

  /// Deletes the job and everything that the service keeps for it.
  private func purge(_ job: JobResponse) {
    // The image was saved or has failed, so an error here does not change the outcome.
    _ = try? connection.send(
      .init(method: "DELETE", path: "/jobs/\(job.id)?purge=true", isStoppable: false))
  }

  private func cancel(_ job: JobResponse) {
    // A failure cannot be handled here, so it is ignored.
    _ = try? connection.send(
      .init(method: "DELETE", path: "/jobs/\(job.id)", seconds: 5, isStoppable: false))
  }

  private func reportProgress(of job: JobResponse) {
    guard let watcher else { return }
    switch job.phase {
    case .loading: watcher(.loading, job.progress)
    case .queued where job.attempts > 0: watcher(.retrying, job.progress)
    default: watcher(.queued, job.progress)
    }
  }
}
