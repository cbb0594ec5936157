internal import Glibc

/// Requests that are retried until the service gives a final response.
extension Download {
  /// Checks once, before any work is done, that the service responds and accepts the token.
  func ping() throws(EndOfRun) {
    let answer: ServiceConnection.Response
    do { answer = try connection.send(.init(path: "/jobs?limit=1")) } catch {
      if error == .stopped { throw .stopped }
      throw endOfRun(for: error)
    }
    switch answer.status {
    case 200, 429, 503: return
    default: throw unexpectedResponse(answer)
    }
  }

  /// Sends a request. Retries while the service is overloaded or, for a limited time, unreachable.
  /// - Parameter beforeRetry: Called before each retry.
  func sendUntilAnswered(
    _ request: ServiceConnection.Request, beforeRetry: () throws(EndOfRun) -> Void = {}
  ) throws(EndOfRun) -> ServiceConnection.Response {
    var backoff = Backoff()
    while true {
      let pause: Duration
      do throws(ServiceConnection.Failure) {
        let answer = try connection.send(request)
        guard let seconds = Self.pause(after: answer) else { return answer }
        pause = .seconds(seconds)
        backoff.answered()
      } catch {
        guard case .broken = error,
          let next = backoff.failed(at: .now, jitter: .random(in: 0...1))
        else { throw endOfRun(for: error) }
        pause = next
      }
      watcher?(.waiting, nil)
      try sleep(for: pause)
      try beforeRetry()
    }
  }

  /// Returns how many seconds to wait if a service or a proxy asks for a retry. Nil for a final
  /// response.
  static func pause(after answer: ServiceConnection.Response) -> Double? {
    switch answer.status {
    case 429, 502, 503, 504:
      let seconds = answer.fields["retry-after"].flatMap { Double($0) } ?? 1
      // The random factor prevents all refused clients from retrying at the same time.
      return min(60, max(0.1, seconds)) * .random(in: 0.75...1.25)
    default: return nil
    }
  }

  /// Waits briefly when a long poll returned at once, for example because of a cache in between.
  func pauseBriefly() throws(EndOfRun) { try sleep(for: .milliseconds(500)) }

  func sleep(for pause: Duration) throws(EndOfRun) {
    let end = ContinuousClock.now + pause
    while ContinuousClock.now < end {
      if stop.isRaised { throw .stopped }
      usleep(50_000)
    }
  }

  func endOfRun(for failure: ServiceConnection.Failure) -> EndOfRun {
    switch failure {
    case .stopped: .stopped
    case .broken(let words): .mistake("cannot reach \(address.base): \(PlainText.line(words))")
    case .unwritable(let code):
      .mistake("failed to write the output: \(SystemError(code: code).text)")
    case .oversized:
      .mistake("\(address.base) returned a larger response than an imagefetch service does")
    }
  }

  func unexpectedResponse(_ answer: ServiceConnection.Response) -> EndOfRun {
    switch answer.status {
    case 401:
      .mistake("\(address.base) requires a valid token: set --token-file or IMAGEFETCH_TOKEN")
    case 403: .mistake("\(address.base) does not allow this token to submit jobs")
    default:
      .mistake("unexpected response from \(address.base): status \(answer.status)")
    }
  }
}
