internal import Digests
internal import FoundationEssentials

/// The dashboard: one document put together from the files in `Page/`, which loads nothing from elsewhere.
public struct DashboardPage: Sendable {
  /// The document, UTF-8.
  public let bytes: [UInt8]
  /// What a browser is to hold the document to (`Content-Security-Policy`): its own script and style, known by their
  /// digests, its own service, and no way for a script to turn text into markup.
  public let contentSecurityPolicy: String

  /// The page of this build.
  /// - Parameter version: which it shows beside the name; digits, letters and what stands between them.
  public init(version: String) {
    let plain = version.filter { $0.isLetter || $0.isNumber || " .-+()".contains($0) }
    self.init(
      markup: Self.filling(
        #"<span class="version" id="version">"#, with: Array(plain.utf8),
        in: PackageResources.dashboard_html), style: PackageResources.dashboard_css,
      scripts: Self.scripts)
  }

  /// - Parameters:
  ///   - markup: with an empty `style` and an empty `script` of type `module`.
  ///   - scripts: parts of one module, so that each sees the names of all.
  init(markup: [UInt8], style: [UInt8], scripts: [[UInt8]]) {
    let script = scripts.joined(separator: [UInt8(ascii: "\n")])
    let parts = [("<style>", style), (#"<script type="module">"#, Array(script))]
    bytes = parts.reduce(markup) { Self.filling($1.0, with: $1.1, in: $0) }
    contentSecurityPolicy = [
      "default-src 'none'", "script-src '\(Self.digest(parts[1].1))'",
      "style-src '\(Self.digest(parts[0].1))'", "img-src blob: data:", "connect-src 'self'",
      "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
      "require-trusted-types-for 'script'", "trusted-types 'none'",
    ].joined(separator: "; ")
  }

  /// In the order in which they run.
  private static var scripts: [[UInt8]] {
    [
      PackageResources.words_js, PackageResources.access_js, PackageResources.order_js,
      PackageResources.export_js,
      PackageResources.address_js, PackageResources.events_js,
      PackageResources.jobs_js, PackageResources.pictures_js, PackageResources.card_js,
      PackageResources.wall_js, PackageResources.actions_js, PackageResources.details_js,
      PackageResources.submit_js, PackageResources.chart_js, PackageResources.glance_js,
      PackageResources.batches_js, PackageResources.main_js,
    ]
  }

  private static func filling(_ tag: String, with content: [UInt8], in markup: [UInt8]) -> [UInt8] {
    // It is in dashboard.html, which a test sees to.
    let place = markup.firstRange(of: Array(tag.utf8))!
    return markup[..<place.upperBound] + content + markup[place.upperBound...]
  }

  /// As a policy names it: of everything between the element's tags.
  private static func digest(_ content: [UInt8]) -> String {
    "sha256-" + Data(SHA256.hash(data: content)).base64EncodedString()
  }
}
