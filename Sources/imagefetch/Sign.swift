internal import App
internal import ArgumentParser
internal import Foundation

/// `imagefetch sign`
struct Sign: ParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Signs an image URL, so that a browser can use it without a token.",
    discussion: """
      URL is this service's (https://img.example/image?url=…&width=200, or its path and query alone), \
      or an origin's, of which one is made. The newest of view.keys signs. The path and the query are \
      signed as the service will see them: a proxy in front must not change them.
      """)

  @Argument(help: ArgumentHelp("This service's, or an origin's.", valueName: "url"))
  var url: String

  @Option(help: ArgumentHelp("The configuration, for its view.keys.", valueName: "file"))
  var config: String?

  @Option(help: ArgumentHelp("For how long it is good: 90s, 12h, 30d.", valueName: "duration"))
  var expiresIn = "1d"

  @Option(help: ArgumentHelp("What goes before the path, for an origin's URL.", valueName: "url"))
  var server: String?

  func validate() throws {
    _ = try goodFor()
    _ = try view()
  }

  func run() throws {
    let configuration = try loaded(from: config)
    let (seconds, unsigned) = (try goodFor().components.seconds, try view())
    let expires = Date.now + TimeInterval(seconds)
    do throws(ViewURL.Refusal) {
      print(try unsigned.signed(by: configuration, expires: expires))
    } catch {
      throw told(error)
    }
  }

  private func goodFor() throws -> Duration {
    guard let goodFor = Duration.configured(expiresIn), goodFor >= .seconds(1) else {
      throw ValidationError("\"\(expiresIn)\" is no duration of a second or more (90s, 12h, 30d).")
    }
    return goodFor
  }

  private func view() throws -> ViewURL {
    do throws(ViewURL.Refusal) { return try ViewURL(url, server: server) } catch {
      throw told(error)
    }
  }

  private func told(_ refusal: ViewURL.Refusal) -> any Error {
    switch refusal {
    case .notAURL:
      ValidationError("\"\(url)\" is neither a URL of GET /image nor an http or https one.")
    case .unusableServer:
      ValidationError("--server goes before an origin's URL, and is an http or https URL.")
    case .unknownMember(let name):
      ValidationError("\"\(name)\" means nothing to GET /image, which would refuse it.")
    case .noKey:
      OperatorMistakes(lines: [
        "view.keys: there is none to sign with; openssl rand -hex 32 makes one for IMAGEFETCH_VIEW_KEYS"
      ])
    }
  }
}
