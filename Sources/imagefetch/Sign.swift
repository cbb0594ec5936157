internal import App
internal import ArgumentParser
internal import Foundation

/// `imagefetch sign`
struct Sign: ParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Signs the URL of a view, so that a browser can use it without a token.",
    discussion: """
      URL is the view's (https://img.example/image?url=…&width=200, or its path and query alone), or \
      an image's, of which a view is made. The newest of view.keys signs. The path and the query are \
      signed as the service will see them: a proxy in front must not change them.
      """)

  @Argument(help: ArgumentHelp("The view, or the image to view.", valueName: "url"))
  var url: String

  @Option(help: ArgumentHelp("The configuration, for its view.keys.", valueName: "file"))
  var config: String?

  @Option(help: ArgumentHelp("For how long it is good: 90s, 12h, 30d.", valueName: "duration"))
  var expiresIn = "1d"

  @Option(help: ArgumentHelp("What goes before the path of an image's view.", valueName: "url"))
  var server: String?

  func run() throws {
    guard let goodFor = Duration.configured(expiresIn), goodFor >= .seconds(1) else {
      throw ValidationError("\"\(expiresIn)\" is no duration of a second or more (90s, 12h, 30d).")
    }
    let configuration = try loaded(from: config)
    let expires = Date.now + TimeInterval(goodFor.components.seconds)
    do throws(ViewURL.Refusal) {
      print(try ViewURL(url, server: server).signed(by: configuration, expires: expires))
    } catch {
      switch error {
      case .notAURL:
        throw ValidationError("\"\(url)\" is neither a view's URL nor an http or https one.")
      case .unusableServer:
        throw ValidationError(
          "--server goes before an image's view, and is an http or https URL.")
      case .unknownMember(let name):
        throw ValidationError("\"\(name)\" means nothing to a view, which would be refused.")
      case .noKey: throw OperatorMistakes(lines: ["view.keys: there is none to sign with"])
      }
    }
  }
}
