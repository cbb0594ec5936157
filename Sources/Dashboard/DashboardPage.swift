internal import Digests
internal import FoundationEssentials

/// The dashboard: one HTML document, assembled from the files in `Page/`. It loads nothing from other servers.
///
/// Input: the files as constants of the executable, and the version. Output: the bytes of the document and its content
/// security policy. The document is made once; it has no state and runs on the caller's thread.
///
/// Reading order: `dashboard.html`, then `main.js`, which names the other scripts.
package struct DashboardPage: Sendable {
  /// The document, UTF-8.
  package let bytes: [UInt8]
  /// The value of `Content-Security-Policy`. It allows only the document's own script and style (by digest) and requests
  /// to its own service. Scripts can't turn text into markup.
  package let contentSecurityPolicy: String

  /// - Parameter version: shown next to the name. Characters other than letters, digits and ` .-+()` are removed.
  package init(version: String) {
    let plain = version.filter { $0.isLetter || $0.isNumber || " .-+()".contains($0) }
    self.init(
      markup: Self.inserting(
        #"<span class="version" id="version">"#, into: Array(plain.utf8),
        in: PackageResources.dashboard_html), style: PackageResources.dashboard_css,
      scripts: Self.scripts)
  }

  /// - Parameters:
  ///   - markup: HTML with an empty `style` element and an empty `script` element of type `module`.
  ///   - scripts: concatenated into one module, so that each can use the names of the others.
  init(markup: [UInt8], style: [UInt8], scripts: [[UInt8]]) {
    let script = scripts.joined(separator: [UInt8(ascii: "\n")])
    let parts = [("<style>", style), (#"<script type="module">"#, Array(script))]
    bytes = parts.reduce(markup) { Self.inserting($1.0, into: $1.1, in: $0) }
    contentSecurityPolicy = [
      "default-src 'none'", "script-src '\(Self.digest(parts[1].1))'",
      "style-src '\(Self.digest(parts[0].1))'", "img-src blob: data:", "connect-src 'self'",
      "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
      "require-trusted-types-for 'script'", "trusted-types 'none'",
    ].joined(separator: "; ")
  }

  /// The scripts in the order in which they run.
  private static var scripts: [[UInt8]] {
    [
      PackageResources.words_js, PackageResources.access_js, PackageResources.order_js,
      PackageResources.export_js,
      PackageResources.address_js, PackageResources.events_js,
      PackageResources.jobs_js, PackageResources.images_js, PackageResources.card_js,
      PackageResources.wall_js, PackageResources.actions_js, PackageResources.details_js,
      PackageResources.submit_js, PackageResources.chart_js, PackageResources.glance_js,
      PackageResources.batches_js, PackageResources.main_js,
    ]
  }

  private static func inserting(_ tag: String, into content: [UInt8], in markup: [UInt8]) -> [UInt8]
  {
    // A test checks that dashboard.html has the tag.
    let place = markup.firstRange(of: Array(tag.utf8))!
    return markup[..<place.upperBound] + content + markup[place.upperBound...]
  }

  /// The digest of the text between an element's tags, in the form of a content security policy.
  private static func digest(_ content: [UInt8]) -> String {
    "sha256-" + Data(SHA256.hash(data: content)).base64EncodedString()
  }
}
