internal import ArgumentParser
internal import Client
internal import Foundation

/// Where images go, and how that is told.
struct OutputOptions: ParsableArguments {
  @Option(
    name: [.short, .long],
    help: ArgumentHelp(
      "A file for one image, a folder, or - for standard output; the working directory by default.",
      discussion: """
        In a folder nothing is ever overwritten: where cat.jpg is taken it is cat-2.jpg. With a \
        slash at its end (photos/) the folder is made; a new name without one is a file's, as with curl. \
        A file's ending (.jpg, .png, .webp, .avif) is the format.
        """,
      valueName: "file|dir"))
  var output: String?

  @Option(
    help: ArgumentHelp(
      "How files in the folder are called, such as {host}/{path}/{name}.{ext}.",
      discussion: """
        {host}, {path} and {name} are the URL's, {ext} is what the bytes are, {index} counts the URLs, \
        {digest} is one of the URL and its variant. Folders are made; no URL leads out of the one at --output.
        """,
      valueName: "template"),
    transform: { text in
      do throws(NameTemplate.Mistake) { return try NameTemplate(text) } catch {
        throw ValidationError(error.text)
      }
    })
  var outputTemplate: NameTemplate?

  @Flag(
    help: ArgumentHelp(
      "Skip each URL that was fetched into this folder before.",
      discussion: """
        Each name has a digest of the URL and of the variant: cat-2f1a09c3d4e5b687.jpg. A folder that was \
        filled without this flag has other names, unless --output-template has {digest}.
        """))
  var skipExisting = false

  @Flag(help: "Lines as JSON: url, state, path, bytes, width, height, format, error.")
  var json = false

  @Flag(name: [.short, .long], help: "No bars, and lines for what failed only.")
  var quiet = false

  func validate() throws {
    guard output == "-" else { return }
    if isatty(STDOUT_FILENO) == 1 {
      throw ValidationError("Standard output is a terminal: send the image to a file or a program.")
    }
    if skipExisting { throw ValidationError(Self.skippingNeedsFolder) }
  }

  private static let skippingNeedsFolder =
    "--skip-existing needs a folder: a file's name does not say which URL the file is from."

  /// - Parameter isMany: whether there may be more images than one.
  func chosen(isMany: Bool) throws -> Output {
    let chosen: Output
    do throws(Output.Mistake) { chosen = try Output(output, isMany: isMany) } catch {
      switch error {
      case .oneOnly(let path):
        throw UsageMistake(
          line:
            "--output: \"\(path)\" is a file, for one image; with a slash at its end it is a folder"
        )
      case .unusable(let text): throw OperatorMistakes(lines: [text])
      }
    }
    guard case .folder = chosen else {
      if skipExisting { throw UsageMistake(line: Self.skippingNeedsFolder) }
      if outputTemplate == nil { return chosen }
      throw UsageMistake(
        line: "--output-template names files in a folder, and \"\(output ?? "")\" is none")
    }
    return chosen
  }

  func add(to settings: inout Run.Settings) {
    (settings.template, settings.skipsExisting) = (outputTemplate, skipExisting)
    (settings.isQuiet, settings.isJSON) = (quiet, json)
  }
}
