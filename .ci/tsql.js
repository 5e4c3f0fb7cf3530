// Parses T-SQL without a server:
//
//	node .ci/tsql.js MODULES FILE...
//
// MODULES is a node_modules folder with antlr4ts-sql and antlr4ts. The grammar
// is not Microsoft's. What it takes and SQL Server does not is looked for beside
// it; what it does not know is in rewrites.
const fs = require('fs');
const path = require('path');

const [modules, ...files] = process.argv.slice(2);
const inModules = (name) => require(path.resolve(modules, name));
const { CharStreams, CommonTokenStream } = inModules('antlr4ts');
const generated = 'antlr4ts-sql/dist/src/grammar-output/tsql/';
const { TSqlLexer } = inModules(generated + 'TSqlLexer');
const { TSqlParser } = inModules(generated + 'TSqlParser');
const { CaseChangingStream } = inModules('antlr4ts-sql/dist/src/models/CaseChangingStream');

const hints = new Set(('FORCESCAN FORCESEEK HOLDLOCK INDEX KEEPDEFAULTS KEEPIDENTITY NOEXPAND NOLOCK NOWAIT PAGLOCK ' +
	'READCOMMITTED READCOMMITTEDLOCK READPAST READUNCOMMITTED REPEATABLEREAD ROWLOCK SERIALIZABLE SNAPSHOT ' +
	'TABLOCK TABLOCKX UPDLOCK XLOCK').split(' '));

// Forms that SQL Server has and the grammar lacks, as others of the same shape.
const rewrites = [
	// Templates: the schema's name, and pieces that the program fills in.
	[/\{\{\.Schema\}\}/g, '[dbo]'],
	[/\{\{[^}]*\}\}/g, ''],
	[/\bCREATE\s+OR\s+ALTER\s+VIEW\b/gi, 'CREATE VIEW'],
	[/\bMIN_ACTIVE_ROWVERSION\s*\(\s*\)/gi, 'SYSUTCDATETIME()'],
	[/\bNEXT\s+VALUE\s+FOR\s+[\w.[\]]+/gi, '1'],
	[/\bWITH\s+CHECK\s+ADD\b/gi, 'ADD'],
	[/\bUPDATE\s*\(\s*(\w+|\[(?:[^\]]|\]\])+\])\s*\)/gi, '1 = 1'],
	[/(?<=\bDECLARE\s+@\w+\s+)(AS\s+)?(\w+|\[(?:[^\]]|\]\])+\])\s*\.\s*(\w+|\[(?:[^\]]|\]\])+\])/gi, 'INT'],
	[/\bSET\s+TEXTSIZE\s+\d+/gi, 'SET ROWCOUNT 0'],
	[/\bFOR\s+SYSTEM_TIME\s+(ALL|AS\s+OF\s+[@\w]+)/gi, ''],
	[/\bDROP\s+COLUMN\s+IF\s+EXISTS\b/gi, 'DROP COLUMN'],
	[/^[ \t]*(GRANT|DENY|REVOKE)\b[^;]*;/gim, ''],
];

// blank replaces comments and strings by as many spaces, newlines kept.
function blank(text) {
	return text.replace(/--.*|\/\*[^]*?\*\/|'(?:[^']|'')*'/g, (s) => s.replace(/[^\n]/g, ' '));
}

function errorsOf(text) {
	// A routine's file may leave to the program whether it is made or replaced.
	const head = /^\s*(PROCEDURE|TRIGGER|FUNCTION|VIEW)\b/i.exec(blank(text));
	if (head) {
		const start = head[0].length - head[1].length;
		text = text.slice(0, start) + 'CREATE ' + text.slice(start);
	}
	const errors = [];
	const report = (line, column, message) => errors.push({ line, column, message: message.replace(/ expecting .*/, '') });
	const at = (index) => text.slice(0, index).split('\n').length;

	const plain = blank(text);
	for (const m of plain.matchAll(/\bWITH\s*\(([^()=]*(?:\([^()]*\)[^()=]*)*)\)/gi)) {
		const words = m[1].replace(/\([^()]*\)/g, '').split(',').map((w) => w.trim().toUpperCase());
		if (words.every((w) => /^[A-Z]+$/.test(w))) {
			words.filter((w) => !hints.has(w)).forEach((w) => report(at(m.index), 0, `${w} is no table hint`));
			if (words.includes('READPAST') && !words.includes('READCOMMITTEDLOCK')) {
				report(at(m.index), 0, 'READPAST without READCOMMITTEDLOCK fails where READ_COMMITTED_SNAPSHOT is on');
			}
		}
	}
	for (const m of plain.matchAll(/\bSET\s+(NOCOUNT|XACT_ABORT|ANSI_\w+|ARITHABORT|QUOTED_IDENTIFIER|IMPLICIT_TRANSACTIONS|NUMERIC_ROUNDABORT)\s+(\w+)/gi)) {
		if (!/^(ON|OFF)$/i.test(m[2])) report(at(m.index), 0, `SET ${m[1]} is followed by ${m[2]}`);
	}
	// Without a semicolon these words are taken for a name, or refused.
	for (const m of plain.matchAll(/\b(ROLLBACK|COMMIT|TRAN|TRANSACTION|END|RETURN)\s+THROW\b/gi)) {
		report(at(m.index), 0, `a semicolon is due between ${m[1]} and THROW`);
	}
	for (const m of plain.matchAll(/([\w\])])\s+WITH\s+[\w[\]]+\s*(\([\w\s,[\]]*\)\s*)?AS\s*\(/gi)) {
		if (!/\b(BEGIN|AS|ELSE|TRY|CATCH|GO)$/i.test(plain.slice(0, m.index + 1))) {
			report(at(m.index), 0, 'a semicolon is due before WITH');
		}
	}

	// A module as a literal, so that it may stand in a batch with others.
	for (const m of text.matchAll(/\bEXEC\s*\(\s*N'((?:[^']|'')*)'\s*\)/gi)) {
		for (const e of errorsOf(m[1].replaceAll("''", "'"))) report(at(m.index) + e.line - 1, e.column, e.message);
	}

	for (const [form, other] of rewrites) text = text.replace(form, (s) => other + '\n'.repeat(s.split('\n').length - 1));
	const listener = { syntaxError: (_, __, line, column, message) => report(line, column, message) };
	const lexer = new TSqlLexer(new CaseChangingStream(CharStreams.fromString(text), true));
	const parser = new TSqlParser(new CommonTokenStream(lexer));
	for (const part of [lexer, parser]) {
		part.removeErrorListeners();
		part.addErrorListener(listener);
	}
	parser.tsql_file();
	return errors;
}

// The check is checked first.
const right = [
	'CREATE OR ALTER PROCEDURE [a].[p] @t [a].[tt] READONLY, @n INT = 1, @out INT OUTPUT WITH EXECUTE AS OWNER AS\n' +
		'BEGIN TRY UPDATE TOP (@n) q SET q.x += 1 OUTPUT inserted.x INTO @got (x) FROM a.q AS q WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, INDEX(ix))\n' +
		'JOIN @t AS t ON t.k = q.k; END TRY BEGIN CATCH IF XACT_STATE() <> 0 ROLLBACK; THROW; END CATCH',
	'CREATE OR ALTER TRIGGER [a].[tr] ON [a].[t] AFTER INSERT, UPDATE, DELETE AS BEGIN DECLARE @x TABLE (k INT PRIMARY KEY);\n' +
		'INSERT INTO @x SELECT k FROM inserted UNION SELECT k FROM deleted; END',
	'SELECT * FROM a.t FOR SYSTEM_TIME AS OF @at AS t WITH (HOLDLOCK);',
	"THROW 50001, N'it''s', 1;",
	'BEGIN WITH c (b) AS (SELECT 1) SELECT b FROM c; END',
];
const wrong = [
	'CREATE PROCEDURE p AS BEGIN SELECT 1',
	'CREATE PROCEDURE p AS BEGIN TRY SELECT 1 END TRY',
	'CREATE TRIGGER t ON x AFTR INSERT AS SELECT 1',
	'UPDATE TOP (@n q SET a = 1',
	'UPDATE q SET a = 1 OUTPUT inserted.a INT @x',
	'SELECT * FROM t WITH (READCOMMITTEDLOCK, UPDLOK)',
	'SELECT * FROM t WITH (READPAST, UPDLOCK)',
	'BEGIN ROLLBACK THROW; END',
	"EXEC (N'CREATE PROCEDURE p AS SELECT ''a'', FROM t')",
	'SELECT 1 AS a WITH c AS (SELECT 1 AS b) SELECT b FROM c',
	'SELECT a, FROM t',
	'SELECT a FROM t LIMIT 1',
	"SELECT 'abc",
	'SET NOCOUNT OON;',
	"THROW 50001 N'x', 1;",
	'MERGE t USING s ON a = b WHEN MATCHD THEN DELETE;',
];
for (const text of right) {
	for (const e of errorsOf(text)) throw new Error(`the check refuses good T-SQL: ${e.message}: ${text}`);
}
for (const text of wrong) {
	if (errorsOf(text).length === 0) throw new Error(`the check takes bad T-SQL: ${text}`);
}

let bad = 0;
let parsed = 0;
for (const file of files) {
	// A template's plain values stand where a name or a value may stand. One with
	// branches or other templates must be rendered first.
	const text = fs.readFileSync(file, 'utf8').replace(/\{\{\.\w+\}\}/g, 'x');
	if (text.includes('{{')) continue;
	const errors = errorsOf(text);
	parsed++;
	bad += errors.length;
	for (const e of errors.slice(0, 5)) console.log(`${file}:${e.line}:${e.column + 1}: ${e.message}`);
	if (errors.length > 5) console.log(`${file}: and ${errors.length - 5} more, which may follow from these`);
}
console.log(`T-SQL: ${parsed} files parsed, ${bad} errors; ${files.length - parsed} left to their rendered text`);
process.exitCode = bad > 0 || parsed === 0 ? 1 : 0;
