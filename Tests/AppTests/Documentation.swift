import Foundation

/// The pages of docs/, split into parts that can be compared with the sources.
enum Documentation {
  static let operating = Page("docs/operating.md")
  static let limits = Page("docs/limits.md")
  static let formats = Page("docs/formats.md")
  static let architecture = Page("docs/architecture.md")
  static let clients = Page("docs/clients.md")
  static let pages = [operating, limits, formats, clients, architecture] + readers
  /// The pages that users read first.
  private static let readers = [
    "docs/comparison.md", "docs/configuration.md", "docs/contributing.md",
    "docs/found.md", "docs/glossary.md", "docs/scaling.md", "docs/trust.md",
  ].map(Page.init)

  struct Page: Sendable {
    let path: String
    let text: String
    /// The text on one line, so that line breaks do not split a phrase.
    let flowing: String

    init(_ path: String) {
      self.path = path
      text = Readme.file(path)
      flowing = text.replacing(#/\s+/#, with: " ")
    }

    /// The inline code in the page.
    var ticked: [String] {
      text.replacing(#/(?ms)^```.*?^```$/#, with: "")
        .matches(of: #/`([^`\n]+)`/#).map { String($0.1) }
    }

    /// The text under a second-level heading.
    func section(_ title: String) -> String { Readme.section(title, of: text) }

    /// The cells of a section's table, without its head.
    func table(_ title: String) -> [[String]] {
      section(title).split(separator: "\n").filter { $0.hasPrefix("|") }.dropFirst(2).map { row in
        row.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
      }
    }

    /// The code blocks of a language.
    func blocks(_ kind: String) -> [String] {
      text.matches(of: #/(?ms)^```([a-z]*)\n(.*?)\n```$/#).filter { $0.1 == kind }
        .map { String($0.2) }
    }

    /// The anchors that GitHub gives to the headings.
    var anchors: Set<String> {
      Set(
        text.matches(of: #/(?m)^#+ (.+)$/#).map {
          $0.1.lowercased().filter { $0.isLetter || $0.isNumber || $0 == " " || $0 == "-" }
            .replacing(" ", with: "-")
        })
    }
  }

  /// All Swift sources of the modules, joined.
  static let sources: String = {
    let folder = Readme.root + "Sources/"
    let files = (try? FileManager.default.subpathsOfDirectory(atPath: folder)) ?? []
    return files.filter { $0.hasSuffix(".swift") }
      .map { Readme.file("Sources/" + $0) }.joined(separator: "\n")
  }()
}
