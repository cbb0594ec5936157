internal import Glibc

/// Asking until there is an answer that says something.
extension Download {
  /// Asks whether the service is there and lets us in, once: before there is anything to lose by it.
  func ping() throws(EndOfRun) {
    let answer: Connection.Answer
    do { answer = try connection.send(.init(path: "/jobs?limit=1")) } catch {
      if error == .stopped { throw .stopped }
      throw outOfReach(error)
    }
    switch answer.status {
    case 200, 429, 503: return
    default: throw unexpected(answer)
    }
  }

  /// - Parameter again: called before each try but the first.
  func ask(
    _ request: Connection.Request, again: () throws(EndOfRun) -> Void = {}
  ) throws(EndOfRun) -> Connection.Answer {
    var backoff = Backoff()
    while true {
      let pause: Duration
      do throws(Connection.Failure) {
        let answer = try connection.send(request)
        guard let seconds = Self.pause(after: answer) else { return answer }
        pause = .seconds(seconds)
        backoff.answered()
      } catch {
        guard case .broken = error,
          let next = backoff.failed(at: .now, jitter: .random(in: 0...1))
        else { throw outOfReach(error) }
        pause = next
      }
      watcher?(.waiting, nil)
      try sleep(for: pause)
      try again()
    }
  }

  /// How many seconds a service, or a proxy before it, wants to be left alone; nil where it answers.
  static func pause(after answer: Connection.Answer) -> Double? {
    switch answer.status {
    case 429, 502, 503, 504:
      let seconds = answer.fields["retry-after"].flatMap { Double($0) } ?? 1
      // Jitter: else all that were refused together come back together.
      return min(60, max(0.1, seconds)) * .random(in: 0.75...1.25)
    default: return nil
    }
  }

  /// A pause for what answers at once though it was asked to wait, as a cache in between does.
  func rest() throws(EndOfRun) { try sleep(for: .milliseconds(500)) }

  func sleep(for pause: Duration) throws(EndOfRun) {
    let end = ContinuousClock.now + pause
    while ContinuousClock.now < end {
      if stop.isRaised { throw .stopped }
      usleep(50_000)
    }
  }

  func outOfReach(_ failure: Connection.Failure) -> EndOfRun {
    switch failure {
    case .stopped: .stopped
    case .broken(let words): .mistake("\(address.base) is out of reach: \(PlainText.line(words))")
    case .unwritable(let code): .mistake("the output: \(SystemError(code: code).text)")
    case .oversized: .mistake("\(address.base) answers with more than an imagefetch service does")
    }
  }

  func unexpected(_ answer: Connection.Answer) -> EndOfRun {
    switch answer.status {
    case 401:
      .mistake("\(address.base) wants a token that it knows: --token-file, IMAGEFETCH_TOKEN")
    case 403: .mistake("\(address.base) doesn't let this token have jobs")
    default:
      .mistake("\(address.base) answers with \(answer.status): not as an imagefetch service does")
    }
  }
}
