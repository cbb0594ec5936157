import Jobs

/// A response's `Content-Length` fields (RFC 9110 section 8.6). They are checked here, because libcurl is
/// more lenient.
enum ContentLength: Equatable {
  /// No `Content-Length`, or a transfer coding overrides it (RFC 9112 section 6.3).
  case unsaid
  case said(Int)
  /// More than `Int` can hold.
  case tooLarge
  /// Different lengths or not a number, so the end of the body is unknown.
  case unclear(String)

  /// - Parameter values: The values of all `Content-Length` fields. Each may repeat one length, separated by
  ///   commas.
  init(_ values: [String]) {
    let lengths = Set(
      values.flatMap { $0.split(separator: ",", omittingEmptySubsequences: false) }.map {
        String($0.trimmingPrefix { $0 == " " || $0 == "\t" })
      })
    guard let text = lengths.first else {
      self = .unsaid
      return
    }
    if lengths.count > 1 {
      self = .unclear("different Content-Length values")
    } else if text.isEmpty || !text.utf8.allSatisfy({ 0x30...0x39 ~= $0 }) {
      self = .unclear("Content-Length is not a number")
    } else {
      self = Int(text).map { .said($0) } ?? .tooLarge
    }
  }

  var bytes: Int? { if case .said(let bytes) = self { bytes } else { nil } }
}

extension HeaderSection {
  var length: ContentLength { isCoded ? .unsaid : ContentLength(values(of: "content-length")) }

  /// Whether the response has both a `Content-Length` and a transfer coding. The origin and a proxy may then
  /// disagree about where the body ends.
  var isDoubtful: Bool { isCoded && !values(of: "content-length").isEmpty }

  private var isCoded: Bool { !values(of: "transfer-encoding").isEmpty }
}
