internal import Digests
internal import Glibc
internal import Synchronization

/// How the files of a run are called, and whether those that exist are fetched again.
///
/// With --skip-existing each name has a digest of its URL and variant. So a file of that name was made from this URL, by
/// this run or an earlier one, and no other URL is ever skipped for it.
final class Naming: Sendable {
  /// What is known of a file before its image is asked for.
  enum Standing: Equatable {
    case wanted
    /// The URL's file exists; its path.
    case exists(String)
    /// The same URL was asked for before in this run.
    case isRepeated
  }

  private let output: Output
  private let template: NameTemplate
  private let skipsExisting: Bool
  /// What --format, or a name's own ending, says that all images will be.
  private let format: ImageOptions.Format?
  /// The query that makes the variant; empty for the image itself.
  private let variant: String
  /// Digests of the URLs of this run: up to a million.
  private let seen = Mutex<Set<UInt64>>([])

  /// - Parameter template: nil: the last part of the URL's path.
  init(
    _ output: Output, template: NameTemplate?, skipsExisting: Bool, format: ImageOptions.Format?,
    variant: String
  ) {
    (self.output, self.skipsExisting, self.format) = (output, skipsExisting, format)
    self.variant = variant
    let template = template ?? .usual
    self.template = skipsExisting ? template.withDigest : template
  }

  /// The outcome of a URL whose image is not requested; nil: it is to be fetched.
  func outcomeUnasked(of url: String, index: Int) -> Outcome? {
    switch standing(of: url, index: index) {
    case .wanted: nil
    case .exists(let path): .skipped(path: path)
    case .isRepeated: .skipped(path: nil)
    }
  }

  /// Whether the image of a URL has to be fetched.
  func standing(of url: String, index: Int) -> Standing {
    guard skipsExisting, case .folder(let folder) = output else { return .wanted }
    let digest = digest(of: url)
    guard seen.withLock({ $0.insert(digest).inserted }) else { return .isRepeated }
    let endings = format.map { [$0 == .jpeg ? "jpg" : $0.rawValue] } ?? FileName.endings
    let names = template.names(
      of: url, index: index, digest: Self.text(digest), endings: endings)
    let paths = names.map { PartialFile.join(folder, $0) }
    return paths.first { access($0, F_OK) == 0 }.map(Standing.exists) ?? .wanted
  }

  /// What an image may be called in a folder.
  /// - Parameter ending: what its bytes are, without the dot.
  func name(of url: String, index: Int, ending: String) -> String {
    template.name(of: url, index: index, digest: Self.text(digest(of: url)), ending: ending)
  }

  /// 64 bits: among a million URLs two share one by a chance of 1 in 37 million.
  private func digest(of url: String) -> UInt64 {
    let text = ImageOptions.url(url) + "\n" + variant
    return SHA256.hash(data: Array(text.utf8)).prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
  }

  private static func text(_ digest: UInt64) -> String {
    let digits = String(digest, radix: 16)
    return String(repeating: "0", count: 16 - digits.count) + digits
  }
}
