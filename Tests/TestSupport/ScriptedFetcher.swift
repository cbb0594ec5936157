package import Jobs
import Synchronization

/// Answers each URL with a scripted response, and records the requests.
package final class ScriptedFetcher: ImageFetcher {
  /// The response to a request for a URL.
  package enum Answer: Sendable {
    /// The body arrives in these pieces.
    case pieces([[UInt8]], total: Int?)
    /// The body starts with these bytes, then waits until the task is cancelled.
    case hangs(after: [UInt8])
    /// The fetch fails.
    case fails(FetchError)
    /// The body starts with these bytes, then fails.
    case breaks(after: [UInt8], FetchError)
    /// The body starts with the first bytes, waits, and continues with the others.
    case waits(after: [UInt8], @Sendable () async -> Void, then: [UInt8])
    /// No response arrives before the request times out or the task is cancelled.
    case silent
    /// A response with this status and these fields.
    case responds(Int, [HeaderField] = [], [UInt8] = [])
  }

  private struct State {
    var answers: [String: [Answer]] = [:]
    var requests: [FetchRequest] = []
    var redirects: [String: (redirects: [FetchedRedirect], target: SourceURL)] = [:]
  }
  private let state = Mutex(State())
  private let spellings: [String: String]

  /// - Parameter spellings: alternative spellings of hosts, with the normal ones.
  package init(spellings: [String: String] = [:]) { self.spellings = spellings }

  package func canonicalSpelling(of host: String) -> String { spellings[host] ?? host }

  /// Scripts the responses of a URL, in order. The last one is repeated.
  package func answer(_ url: String, with answers: Answer...) {
    state.withLock { $0.answers[SourceURL(url)!.string] = answers }
  }

  /// Makes the responses of a URL come from another URL through redirects.
  package func redirect(_ url: String, over redirects: [FetchedRedirect], to target: String) {
    state.withLock { $0.redirects[SourceURL(url)!.string] = (redirects, SourceURL(target)!) }
  }

  /// The requests, in order.
  package var requests: [FetchRequest] { state.withLock { $0.requests } }

  package func fetch(_ request: FetchRequest) async throws(FetchError) -> FetchedResponse {
    let answer = state.withLock { state -> Answer in
      state.requests.append(request)
      guard let answers = state.answers[request.url.string], let first = answers.first else {
        return .fails(.originStatus(404, retryAfter: nil))
      }
      if answers.count > 1 { state.answers[request.url.string]?.removeFirst() }
      return first
    }
    if Task.isCancelled { throw .cancelled }
    let way = state.withLock { $0.redirects[request.url.string] }
    if let way { try await request.admission?(way.target.origin) }
    let body: Body
    var total: Int?
    var (status, fields) = (200, [HeaderField]())
    switch answer {
    case .fails(let error): throw error
    case .silent:
      try? await Task.sleep(for: request.timeout)
      throw Task.isCancelled ? .cancelled : .timeout(seconds: 0)
    case .responds(let code, let sent, let bytes):
      (status, fields) = (code, sent)
      body = Body([bytes], then: .ends)
    case .waits(let first, let wait, let rest): body = Body([first], then: .goesOn(wait, rest))
    case .pieces(let pieces, let length):
      body = Body(pieces, then: .ends)
      total = length
    case .hangs(let bytes): body = Body([bytes], then: .hangs)
    case .breaks(let bytes, let error): body = Body([bytes], then: .breaks(error))
    }
    var response = FetchedResponse(
      url: request.url, status: status, headers: fields, contentLength: total, body: body,
      timings: TransferTimings())
    if let way { (response.redirects, response.url) = way }
    return response
  }

  private final class Body: ImageBytes {
    enum Ending: Sendable {
      case ends, hangs, breaks(FetchError)
      case goesOn(@Sendable () async -> Void, [UInt8])
    }
    private let pieces: Mutex<[[UInt8]]>
    private let ending: Mutex<Ending>

    init(_ pieces: [[UInt8]], then ending: Ending) {
      self.pieces = Mutex(pieces.filter { !$0.isEmpty })
      self.ending = Mutex(ending)
    }

    static func hang() async throws(FetchError) {
      while !Task.isCancelled { try? await Task.sleep(for: .seconds(60)) }
      throw .cancelled
    }

    func next() async throws(FetchError) -> [UInt8]? {
      if let piece = pieces.withLock({ $0.isEmpty ? nil : $0.removeFirst() }) { return piece }
      switch ending.withLock({ $0 }) {
      case .ends: return nil
      case .breaks(let error): throw error
      case .hangs:
        try await Self.hang()
        return nil
      case .goesOn(let wait, let rest):
        await wait()
        ending.withLock { $0 = .ends }
        return rest
      }
    }
  }
}
