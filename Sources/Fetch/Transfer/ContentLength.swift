import Jobs

/// What a response's `Content-Length` fields say (RFC 9110 section 8.6), read before libcurl's reading is believed.
enum ContentLength: Equatable {
  /// Nothing, or a transfer coding overrules it (RFC 9112 section 6.3).
  case unsaid
  case said(Int)
  /// More than can be counted.
  case tooLarge
  /// Different lengths, or no number: nobody can tell where such a body ends.
  case unclear(String)

  /// - Parameter values: of the fields, each maybe a list of equal ones.
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
      self = .unclear("two lengths")
    } else if text.isEmpty || !text.utf8.allSatisfy({ 0x30...0x39 ~= $0 }) {
      self = .unclear("a length that is no number")
    } else {
      self = Int(text).map { .said($0) } ?? .tooLarge
    }
  }

  var bytes: Int? { if case .said(let bytes) = self { bytes } else { nil } }
}

extension HeaderSection {
  var length: ContentLength { isCoded ? .unsaid : ContentLength(values(of: "content-length")) }

  /// Whether it says both where the body ends and that a coding does: the origin and somebody before it may disagree.
  var isDoubtful: Bool { isCoded && !values(of: "content-length").isEmpty }

  private var isCoded: Bool { !values(of: "transfer-encoding").isEmpty }
}
