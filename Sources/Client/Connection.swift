internal import CCurl

/// One thread's way to the service: a libcurl handle, which uses its connection again from request to request. Calls block.
final class Connection {
  /// What is asked.
  struct Request {
    var method = "GET"
    /// Path and query, below the service's address.
    var path: String
    /// Beside those that every request has, as `Name: value`.
    var fields: [String] = []
    var body: [UInt8]?
    var contentType = "application/json"
    /// How long the whole of it may take, in seconds; nil for as long as bytes come.
    var seconds: Int? = 30
    /// Where the body of a 200 goes, bounded by so many bytes; every other answer is kept in memory.
    var sink: (descriptor: Int32, limit: Int)?
    /// Takes the lines of a 200 as they come, where they are not to be kept; without their ends.
    var onLine: ((ArraySlice<UInt8>) -> Void)?
    /// Whether the stop flag breaks it off.
    var isStoppable = true
  }

  /// What was answered.
  struct Answer {
    var status = 0
    /// By their names in lower case.
    var fields: [String: String] = [:]
    var body: [UInt8] = []
    /// Bytes that went to the sink.
    var saved = 0
  }

  /// Why there is no whole answer.
  enum Failure: Error, Equatable {
    /// The service is out of reach, or went away in between; in libcurl's words.
    case broken(String)
    /// The stop flag was raised.
    case stopped
    /// What the sink's descriptor said; an errno.
    case unwritable(Int32)
    /// The answer is longer than any of the service's.
    case oversized
  }

  /// Of an answer that is kept in memory, of a line, and of header fields.
  static let maxBody = 1 << 20
  static let maxFieldBytes = 65_536

  private let address: ServiceAddress
  let stop: CancellationFlag
  let easy: UnsafeMutableRawPointer
  private let message: UnsafeMutablePointer<CChar>
  var exchange = Exchange()

  /// One request's state, for the callbacks.
  struct Exchange {
    var answer = Answer()
    var sink: (descriptor: Int32, limit: Int)?
    var onLine: ((ArraySlice<UInt8>) -> Void)?
    var isStoppable = true
    var fieldBytes = 0
    var failure: Failure?
  }

  private static let isReady = curl_global_init(Int(CURL_GLOBAL_ALL)) == CURLE_OK

  /// - Returns: nil where libcurl has no memory left.
  init?(to address: ServiceAddress, stop: CancellationFlag) {
    guard Self.isReady, let easy = curl_easy_init() else { return nil }
    self.easy = easy
    (self.address, self.stop) = (address, stop)
    message = .allocate(capacity: Int(CURL_ERROR_SIZE))
    message.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
  }

  deinit {
    curl_easy_cleanup(easy)
    message.deallocate()
  }

  /// Asks, and waits for the whole answer.
  func send(_ request: Request) throws(Failure) -> Answer {
    if request.isStoppable, stop.isRaised { throw .stopped }
    exchange = Exchange()
    (exchange.sink, exchange.isStoppable) = (request.sink, request.isStoppable)
    exchange.onLine = request.onLine
    // Forgets the options, keeps the connection.
    curl_easy_reset(easy)
    message.pointee = 0
    setOptions(request)
    let lines = fields(of: request)
    defer { curl_slist_free_all(lines) }
    CCurl_setList(easy, CURLOPT_HTTPHEADER, lines)
    let code = perform(with: request.body)
    if let failure = exchange.failure { throw failure }
    if code == CURLE_ABORTED_BY_CALLBACK { throw .stopped }
    guard code == CURLE_OK else {
      let words = String(cString: message)
      throw .broken(words.isEmpty ? String(cString: curl_easy_strerror(code)) : words)
    }
    return exchange.answer
  }

  private func perform(with body: [UInt8]?) -> CURLcode {
    guard let body else { return curl_easy_perform(easy) }
    return body.withUnsafeBytes { bytes in
      CCurl_setLong(easy, CURLOPT_POSTFIELDSIZE, bytes.count)
      let start = UnsafeMutableRawPointer(mutating: bytes.baseAddress)
      CCurl_setPointer(easy, CURLOPT_POSTFIELDS, start)
      return curl_easy_perform(easy)
    }
  }

  private func setOptions(_ request: Request) {
    CCurl_setPointer(easy, CURLOPT_ERRORBUFFER, message)
    set(CURLOPT_URL, address.base + request.path)
    set(CURLOPT_CUSTOMREQUEST, request.method)
    set(CURLOPT_PROTOCOLS_STR, "http,https")
    // The environment's proxies count for a service elsewhere, never for one on this machine.
    if address.isOurs || address.isLoopback { set(CURLOPT_PROXY, "") }
    CCurl_setLong(easy, CURLOPT_NOSIGNAL, 1)
    CCurl_setLong(easy, CURLOPT_HTTP09_ALLOWED, 0)
    CCurl_setLong(easy, CURLOPT_CONNECTTIMEOUT_MS, 10_000)
    if let seconds = request.seconds {
      CCurl_setLong(easy, CURLOPT_TIMEOUT_MS, seconds * 1000)
    } else {
      CCurl_setLong(easy, CURLOPT_LOW_SPEED_LIMIT, 1)
      CCurl_setLong(easy, CURLOPT_LOW_SPEED_TIME, 120)
    }
    installCallbacks()
  }

  private func fields(of request: Request) -> UnsafeMutablePointer<curl_slist>? {
    var lines = ["User-Agent: imagefetch-get"] + request.fields
    if let token = address.token { lines.append("Authorization: Bearer \(token)") }
    // Without "Expect:" libcurl would wait for leave to send a longer body.
    if request.body != nil { lines += ["Content-Type: \(request.contentType)", "Expect:"] }
    var list: UnsafeMutablePointer<curl_slist>?
    for line in lines { list = curl_slist_append(list, line) ?? list }
    return list
  }

  private func set(_ option: CURLoption, _ value: String) {
    _ = value.withCString { CCurl_setString(easy, option, $0) }
  }
}
